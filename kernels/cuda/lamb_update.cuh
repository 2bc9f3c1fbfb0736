#pragma once

// What the kernels of an optimizer's update share (lamb.cu, lamb_step.cu).

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/cuda/lamb_chunks.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha::lamb {

inline constexpr int kThreads = 256;
inline constexpr int kVec = 4;  // 16 bytes of f32

inline const LambState* state_of(const View& state) {
  return static_cast<const LambState*>(state.data);
}

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

/// kNo: data of an element that is not read again leaves L2 first (ld.global.cs, st.global.cs), so
/// that something else stays there. Kernels that only stream are faster with kYes.
enum class Cached : uint8_t { kYes, kNo };

/// How N elements are accessed at once.
template <class V>
using AccessOf = std::conditional_t<V::kBytes == 16, uint4,
                                    std::conditional_t<V::kBytes == 8, uint2, typename V::Word>>;

template <Cached kCached, int N, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  if constexpr (kCached == Cached::kYes) return load_floats(from, to);
  using V = Vec<T, N>;
  const AccessOf<V> words = __ldcs(reinterpret_cast<const AccessOf<V>*>(from));
  to_floats(reinterpret_cast<const V&>(words), to);
}

template <Cached kCached, int N, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
  if constexpr (kCached == Cached::kYes) return store_floats(to, from);
  using V = Vec<T, N>;
  const V vec = to_vec<T>(from);
  __stcs(reinterpret_cast<AccessOf<V>*>(to), reinterpret_cast<const AccessOf<V>&>(vec));
}

template <class T, Cached kCachedIn = Cached::kYes>
struct MomentsJob {
  static constexpr Cached kCached = kCachedIn;

  const T* gradient;
  float* weight;
  float* m;
  float* v;
  const LambState* state;
  LambChunkTable table;
  LambMomentsRules rules;
  int vec;                      // kVec, or 1 if an array is not aligned
  float* update = nullptr;      // LambMoments only
  double2* norms = nullptr;     // [X]  not AdamWStep
  double2* partials = nullptr;  // [chunks]  not AdamWStep
  T* model_weight = nullptr;    // not LambMoments
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

/// For block_sum().
__device__ __forceinline__ NormSums warp_sum(const NormSums& sums) {
  return {.w2 = bertha::warp_sum(sums.w2), .u2 = bertha::warp_sum(sums.u2)};
}

/// Advances m and v of N elements; out: their weights and update directions.
template <int N, class Job>
__device__ __forceinline__ void advance(const Job& job, const LambCoefficients& c, int64_t at,
                                        float (&w)[N], float (&u)[N]) {
  float g[N], m[N], v[N];
  load<Job::kCached>(job.gradient + at, g);
  load_floats(job.weight + at, w);
  load<Job::kCached>(job.m + at, m);
  load<Job::kCached>(job.v + at, v);
#pragma unroll
  for (int e = 0; e < N; ++e) u[e] = lamb_direction(c, g[e], w[e], m[e], v[e]);
  store<Job::kCached>(job.m + at, m);
  store<Job::kCached>(job.v + at, v);
}

/// Advances m and v of a chunk and calls keep(at, u) for its update directions; returns the
/// thread's part of the sums.
template <class Job, class Keep>
__device__ __forceinline__ NormSums advance_chunk(const Job& job, const LambChunk& chunk,
                                                  const Keep& keep) {
  const LambCoefficients c = lamb_coefficients(job.rules, *job.state, chunk.decay != 0);
  NormSums sums;
  for_elements<2>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
    float w[N], u[N];
    advance(job, c, at, w, u);
#pragma unroll
    for (int e = 0; e < N; ++e) sums.add(w[e], u[e]);
    keep(at, u);
  });
  return sums;
}

/// Adds the sums of a chunk, number `index`, to its tensor's. Returns true in the last block of the
/// tensor to call it; thread 0 there has stored the tensor's norms, and `sums` contains them.
template <class Job>
__device__ __forceinline__ bool add_to_norms(const Job& job, const LambChunk& chunk, int64_t index,
                                             NormSums& sums) {
  __shared__ NormSums of_warp[kThreads / kWarpThreads];
  sums = block_sum(sums, of_warp);
  if (threadIdx.x == 0) job.partials[index] = {sums.w2, sums.u2};
  const LambChunkRange range = job.table.of_tensor[chunk.tensor];
  if (!is_last_block(&job.table.arrivals[chunk.tensor], static_cast<uint32_t>(range.count))) {
    return false;
  }
  NormSums rest;
  for (int i = static_cast<int>(threadIdx.x); i < range.count; i += kThreads) {
    const double2 partial = __ldcg(&job.partials[range.first + i]);
    rest.w2 += partial.x;
    rest.u2 += partial.y;
  }
  sums = block_sum(rest, of_warp);
  if (threadIdx.x == 0) job.norms[chunk.tensor] = {sums.w2, sums.u2};
  return true;
}

/// Zero norms of tensors without a chunk, or of all. The grid's threads share the work.
template <class Job>
__device__ void clear_norms(const Job& job, bool all) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t x = thread; x < job.table.tensors; x += int64_t{gridDim.x} * kThreads) {
    if (all || job.table.of_tensor[x].count == 0) job.norms[x] = {0.0, 0.0};
  }
}

/// The model's copy of a chunk's weights. Job, here and below: MomentsJob or ApplyJob.
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
  store<Job::kCached>(job.weight + at, w);
  store<Job::kCached>(job.model_weight + at, w);
}

__device__ __forceinline__ float step_size_of(const LambState& state, const double2& norms,
                                              const LambChunk& chunk) {
  return state.learning_rate * trust_ratio(norms.x, norms.y, chunk.decay != 0);
}

/// kVec when every array can be accessed in vectors of it, else 1.
inline int vec_size_of(std::initializer_list<View> views) {
  for (const View& view : views) {
    const int64_t vec_bytes = kVec * size_bytes(view.dtype);
    if (reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(vec_bytes) != 0) return 1;
  }
  return kVec;
}

/// What the jobs of LambMoments, LambStep and AdamWStep share; last: the array that only some have.
template <class T, Cached kCached, class Args>
MomentsJob<T, kCached> moments_job(const Args& args, const LambChunkTable& table,
                                   const View& last) {
  return {.gradient = elements<T>(args.gradient),
          .weight = args.weight.template as<float>(),
          .m = args.m.template as<float>(),
          .v = args.v.template as<float>(),
          .state = state_of(args.state),
          .table = table,
          .rules = args.rules,
          .vec = vec_size_of({args.gradient, args.weight, args.m, args.v, last})};
}

/// The same for an operation with norms.
template <class T, Cached kCached, class Args>
MomentsJob<T, kCached> norms_job(CudaContext& context, const Args& args,
                                 const LambChunkTable& table, const View& last) {
  MomentsJob<T, kCached> job = moments_job<T, kCached>(args, table, last);
  job.norms = static_cast<double2*>(args.norms.data);
  job.partials = static_cast<double2*>(
      context.scratch.take(std::max(table.chunks_count, int64_t{1}) * int64_t{sizeof(double2)}));
  return job;
}

}  // namespace bertha::lamb
