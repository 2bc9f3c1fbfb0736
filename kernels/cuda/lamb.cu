// The LAMB update in three passes over a shard: moments with the norms, a reduction between ranks,
// and the step. AdamW needs no norms: one pass. Each block updates one chunk of one tensor; the
// last chunk of a tensor to finish adds up the tensor's norms in chunk order, so that the bits do
// not depend on which one it was.
//
// Bound by  memory: per element with 16-bit gradients and weights 26 bytes for the moments and 14
//           for the step, 28 for AdamW.
// Figure    336 million elements in bf16, one H200: moments 2,149 us, step 1,140 us, 95 and 97 % of
//           the rate of a copy (kernels/measured/lamb.md).

#include <algorithm>

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/cuda/lamb_chunks.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kVec = 4;  // 16 bytes of f32
constexpr int kClipBlocksPerSm = 8;

const LambState* state_of(const View& state) { return static_cast<const LambState*>(state.data); }

/// A range of elements cut for wide accesses: [begin, head) one by one, [head, tail) in vectors of
/// N, [tail, end) one by one. Indices are elements of arrays that are aligned at element 0.
struct FlatRange {
  int64_t begin;
  int64_t head;
  int64_t tail;
  int64_t end;

  __device__ __forceinline__ FlatRange(int64_t begin_in, int64_t end_in, int vec)
      : begin(begin_in), end(end_in) {
    const int64_t up = (begin + vec - 1) / vec * vec;
    head = up < end ? up : end;
    tail = head + (end - head) / vec * vec;
  }

  /// Elements outside the vectors: fewer than two vectors.
  __device__ __forceinline__ int rest() const {
    return static_cast<int>((head - begin) + (end - tail));
  }
  __device__ __forceinline__ int64_t rest_element(int i) const {
    const int64_t before = head - begin;
    return i < before ? begin + i : tail + (i - before);
  }
};

/// Elements before the first one at a multiple of 16 bytes; for a FlatRange over one array.
template <class T>
__device__ __forceinline__ int64_t elements_past_16_bytes(const T* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T));
}

/// work(std::integral_constant<int, N>, at) for the thread's share of a chunk: N elements from `at`
/// on, kVec of them or, at the ends and where `vec` is 1, one.
template <int kUnroll, class Work>
__device__ __forceinline__ void for_elements(const LambChunk& chunk, int vec, const Work& work) {
  constexpr std::integral_constant<int, 1> kOne;
  const int64_t end = chunk.begin + chunk.elements;
  if (vec == 1) {
    for (int64_t i = chunk.begin + threadIdx.x; i < end; i += kThreads) work(kOne, i);
    return;
  }
  const FlatRange range(chunk.begin, end, kVec);
#pragma unroll kUnroll
  for (int64_t i = range.head + threadIdx.x * kVec; i < range.tail; i += kThreads * kVec) {
    work(std::integral_constant<int, kVec>{}, i);
  }
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < range.rest()) work(kOne, range.rest_element(thread));
}

// --- LambPrepare, ClipFactor, ClipLocal ---

__global__ void prepare_kernel(LambState* state, const double* gradient_sum_of_squares,
                               LambPrepareRules rules) {
  LambState next = *state;
  prepare_update(next, *gradient_sum_of_squares, rules);
  *state = next;
}

__global__ void clip_factor_kernel(float* factor, const LambState* state, const double* sum,
                                   double max_norm) {
  *factor = local_clip_factor(*state, *sum, max_norm);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    clip_kernel(T* gradient, int64_t count, const float* factor_of_rank) {
  const float factor = *factor_of_rank;
  if (factor == 1.0f) return;

  constexpr int N = kVec16<T>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t offset = elements_past_16_bytes(gradient);
  T* aligned = gradient - offset;
  const FlatRange range(offset, offset + count, N);
  for (int64_t i = range.head + thread * N; i < range.tail; i += threads * N) {
    float values[N];
    load_floats(aligned + i, values);
#pragma unroll
    for (int e = 0; e < N; ++e) values[e] *= factor;
    store_floats(aligned + i, values);
  }
  if (thread < range.rest()) {
    T& value = aligned[range.rest_element(static_cast<int>(thread))];
    value = from_float<T>(to_float(value) * factor);
  }
}

// --- LambMoments, and what AdamWStep shares with it ---

template <class T>
struct MomentsJob {
  const T* gradient;
  float* weight;
  float* m;
  float* v;
  const LambState* state;
  LambChunkTable table;
  LambMomentsRules rules;
  int vec;                      // kVec, or 1 if an array is not aligned
  float* update = nullptr;      // LambMoments only
  double2* norms = nullptr;     // [X]  LambMoments only
  double2* partials = nullptr;  // [chunks]  LambMoments only
  T* model_weight = nullptr;    // AdamWStep only
};

/// Sums of w^2 and u^2.
struct NormSums {
  double w2 = 0.0;
  double u2 = 0.0;

  __device__ __forceinline__ void add(float w, float u) {
    w2 += static_cast<double>(w) * static_cast<double>(w);
    u2 += static_cast<double>(u) * static_cast<double>(u);
  }
};

/// Advances m and v of N elements; out: their weights and update directions.
template <int N, class T>
__device__ __forceinline__ void advance(const MomentsJob<T>& job, const LambCoefficients& c,
                                        int64_t at, float (&w)[N], float (&u)[N]) {
  float g[N], m[N], v[N];
  load_floats(job.gradient + at, g);
  load_floats(job.weight + at, w);
  load_floats(job.m + at, m);
  load_floats(job.v + at, v);
#pragma unroll
  for (int e = 0; e < N; ++e) u[e] = lamb_direction(c, g[e], w[e], m[e], v[e]);
  store_floats(job.m + at, m);
  store_floats(job.v + at, v);
}

template <class T>
__device__ NormSums advance_chunk(const MomentsJob<T>& job, const LambChunk& chunk) {
  const LambCoefficients c = lamb_coefficients(job.rules, *job.state, chunk.decay != 0);
  NormSums sums;
  for_elements<2>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
    float w[N], u[N];
    advance(job, c, at, w, u);
#pragma unroll
    for (int e = 0; e < N; ++e) sums.add(w[e], u[e]);
    store_floats(job.update + at, u);
  });
  return sums;
}

template <class T>
__global__ void __launch_bounds__(kThreads) moments_kernel(MomentsJob<T> job) {
  __shared__ double warp_partials[kWarpThreads];
  const bool skip = job.state->skip != 0;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t x = thread; x < job.table.tensors; x += int64_t{gridDim.x} * kThreads) {
    const bool is_empty = job.table.first_chunk[x] == job.table.first_chunk[x + 1];
    if (skip || is_empty) job.norms[x] = {0.0, 0.0};
  }
  if (skip || blockIdx.x >= job.table.chunks_count) return;

  const LambChunk chunk = job.table.chunks[blockIdx.x];
  const NormSums sums = advance_chunk(job, chunk);
  const double w2 = block_sum(sums.w2, warp_partials);
  const double u2 = block_sum(sums.u2, warp_partials);
  if (threadIdx.x == 0) job.partials[blockIdx.x] = {w2, u2};
  const int first = job.table.first_chunk[chunk.tensor];
  const int count = job.table.first_chunk[chunk.tensor + 1] - first;
  if (!is_last_block(&job.table.arrivals[chunk.tensor], static_cast<uint32_t>(count))) return;

  NormSums rest;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const double2 partial = __ldcg(&job.partials[first + i]);
    rest.w2 += partial.x;
    rest.u2 += partial.y;
  }
  const double tensor_w2 = block_sum(rest.w2, warp_partials);
  const double tensor_u2 = block_sum(rest.u2, warp_partials);
  if (threadIdx.x == 0) job.norms[chunk.tensor] = {tensor_w2, tensor_u2};
}

// --- LambApply ---

template <class T>
struct ApplyJob {
  float* weight;
  T* model_weight;
  const float* update;
  const double2* norms;  // [X]
  const LambState* state;
  LambChunkTable table;
  int vec;
};

/// The model's copy of a chunk's weights. Job: ApplyJob or MomentsJob.
template <class Job>
__device__ void copy_chunk(const Job& job, const LambChunk& chunk) {
  for_elements<4>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
    float w[N];
    load_floats(job.weight + at, w);
    store_floats(job.model_weight + at, w);
  });
}

/// w -= step_size u, written to the weights and to the model's copy. It rounds once explicitly: the
/// compiler does not fuse the two operations across the branches of lamb_direction.
template <int N, class Job>
__device__ __forceinline__ void take_step(const Job& job, int64_t at, float step_size,
                                          const float (&u)[N], float (&w)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) w[e] = __fmaf_rn(-step_size, u[e], w[e]);
  store_floats(job.weight + at, w);
  store_floats(job.model_weight + at, w);
}

template <class T>
__global__ void __launch_bounds__(kThreads) apply_kernel(ApplyJob<T> job) {
  const LambChunk chunk = job.table.chunks[blockIdx.x];
  if (job.state->skip != 0) return copy_chunk(job, chunk);
  __shared__ float step_size;
  if (threadIdx.x == 0) {
    const double2 sums = job.norms[chunk.tensor];
    step_size = job.state->learning_rate * trust_ratio(sums.x, sums.y, chunk.decay != 0);
  }
  __syncthreads();
  for_elements<4>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
    float w[N], u[N];
    load_floats(job.weight + at, w);
    load_floats(job.update + at, u);
    take_step(job, at, step_size, u, w);
  });
}

// --- AdamWStep ---

template <class T>
__global__ void __launch_bounds__(kThreads) adamw_kernel(MomentsJob<T> job) {
  const LambChunk chunk = job.table.chunks[blockIdx.x];
  if (job.state->skip != 0) return copy_chunk(job, chunk);
  const LambCoefficients c = lamb_coefficients(job.rules, *job.state, chunk.decay != 0);
  const float learning_rate = job.state->learning_rate;
  for_elements<2>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
    float w[N], u[N];
    advance(job, c, at, w, u);
    take_step(job, at, learning_rate, u, w);
  });
}

/// kVec when every array can be accessed in vectors of it, else 1.
int vec_size_of(std::initializer_list<View> views) {
  for (const View& view : views) {
    const int64_t vec_bytes = kVec * size_bytes(view.dtype);
    if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(vec_bytes) != 0) return 1;
  }
  return kVec;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LambPrepare& args) {
  launch_kernel(context.stream, prepare_kernel, {1, 1}, static_cast<LambState*>(args.state.data),
                args.gradient_sum_of_squares.as<double>(), args.rules);
}

template <>
void run_cuda(CudaContext& context, const ClipFactor& args) {
  launch_kernel(context.stream, clip_factor_kernel, {1, 1}, args.factor.as<float>(),
                state_of(args.state), args.gradient_sum_of_squares.as<double>(),
                args.max_gradient_norm);
}

template <>
void run_cuda(CudaContext& context, const ClipLocal& args) {
  const int64_t count = args.gradient.elements();
  if (count == 0) return;
  dispatch_io(args.gradient.dtype, [&]<class T>(TypeTag<T>) {
    const unsigned blocks = blocks_on(context, count, kThreads * kVec16<T>, kClipBlocksPerSm);
    launch_kernel(context.stream, clip_kernel<T>, {blocks, kThreads}, elements<T>(args.gradient),
                  count, args.factor.as<float>());
  });
}

template <>
void run_cuda(CudaContext& context, const LambMoments& args) {
  const int64_t tensors = args.norms.extent(0);
  if (tensors == 0) return;
  const LambChunkTable table = context.state<LambChunkTables>().table_of(args.segments, tensors);
  const int64_t blocks = std::max(table.chunks_count, int64_t{1});
  dispatch_io(args.gradient.dtype, [&]<class T>(TypeTag<T>) {
    const MomentsJob<T> job{
        .gradient = elements<T>(args.gradient),
        .weight = args.weight.as<float>(),
        .m = args.m.as<float>(),
        .v = args.v.as<float>(),
        .state = state_of(args.state),
        .table = table,
        .rules = args.rules,
        .vec = vec_size_of({args.gradient, args.weight, args.m, args.v, args.update}),
        .update = args.update.as<float>(),
        .norms = static_cast<double2*>(args.norms.data),
        .partials = static_cast<double2*>(context.scratch.take(blocks * int64_t{sizeof(double2)}))};
    launch_kernel(context.stream, moments_kernel<T>, {blocks, kThreads}, job);
  });
}

template <>
void run_cuda(CudaContext& context, const LambApply& args) {
  const LambChunkTable table =
      context.state<LambChunkTables>().table_of(args.segments, args.norms.extent(0));
  if (table.chunks_count == 0) return;
  dispatch_io(args.model_weight.dtype, [&]<class T>(TypeTag<T>) {
    const ApplyJob<T> job{.weight = args.weight.as<float>(),
                          .model_weight = elements<T>(args.model_weight),
                          .update = args.update.as<float>(),
                          .norms = static_cast<const double2*>(args.norms.data),
                          .state = state_of(args.state),
                          .table = table,
                          .vec = vec_size_of({args.weight, args.model_weight, args.update})};
    launch_kernel(context.stream, apply_kernel<T>, {table.chunks_count, kThreads}, job);
  });
}

template <>
void run_cuda(CudaContext& context, const AdamWStep& args) {
  int64_t tensors = 0;
  for (const LambSegment& segment : args.segments) tensors = std::max(tensors, segment.tensor + 1);
  const LambChunkTable table = context.state<LambChunkTables>().table_of(args.segments, tensors);
  if (table.chunks_count == 0) return;
  dispatch_io(args.gradient.dtype, [&]<class T>(TypeTag<T>) {
    const MomentsJob<T> job{
        .gradient = elements<T>(args.gradient),
        .weight = args.weight.as<float>(),
        .m = args.m.as<float>(),
        .v = args.v.as<float>(),
        .state = state_of(args.state),
        .table = table,
        .rules = args.rules,
        .vec = vec_size_of({args.gradient, args.weight, args.model_weight, args.m, args.v}),
        .model_weight = elements<T>(args.model_weight)};
    launch_kernel(context.stream, adamw_kernel<T>, {table.chunks_count, kThreads}, job);
  });
}

}  // namespace bertha
