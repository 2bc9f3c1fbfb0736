// Updates of whole tensors in one launch: LAMB in a shard that has all elements of its tensors, and
// AdamW, which needs no norms.
//
// LambStep  A cooperative grid, whose blocks take the chunks in order. A block keeps the update
//           directions of a chunk in shared memory until the norms of the tensor are there, and
//           finds most of the chunk's weights in L2 again: everything else bypasses it. Such a
//           tensor has at most as many chunks as there are blocks, so that all of its chunks are in
//           blocks at once, as soon as earlier tensors are stepped. Larger tensors come first and
//           are stepped at the end, with directions computed a second time.
// Bound by  memory: per element with 16-bit gradients and weights 28 bytes, 40 in larger tensors.
// Figure    336 million elements in bf16, one H200: 2,830 us, 78 % of the rate of a copy: blocks
//           wait for the norms of their tensor (kernels/measured/lamb.md).

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/lamb_update.cuh"

namespace bertha {
namespace lamb {
namespace {

constexpr int kStepBlocksPerSm = 4;

/// learning_rate * ratio, for all blocks that wait for it. One thread.
__device__ __forceinline__ void publish_step_size(unsigned long long* to, float step_size) {
  constexpr unsigned long long kIsThere = 1ull << 32;
  atomicExch(to, kIsThere | __float_as_uint(step_size));
}

/// Waits for the number that publish_step_size() stores. All threads of a block call it.
__device__ __forceinline__ float await_step_size(const volatile unsigned long long* from) {
  __shared__ float step_size;
  __syncthreads();  // the last one has been read
  if (threadIdx.x == 0) {
    unsigned long long word = 0;
    while (word == 0) word = *from;
    step_size = __uint_as_float(static_cast<uint32_t>(word));
  }
  __syncthreads();
  return step_size;
}

/// Cooperative. table.step_of_tensor is zero at the start.
template <class T>
__global__ void __launch_bounds__(kThreads, kStepBlocksPerSm)
    lamb_step_kernel(MomentsJob<T, Cached::kNo> job) {
  __shared__ __align__(16) float update[kLambChunkElements];
  const LambChunkTable& table = job.table;
  const bool skip = job.state->skip != 0;
  clear_norms(job, skip);
  for (int64_t i = blockIdx.x; i < table.chunks_count; i += gridDim.x) {
    const LambChunk chunk = table.chunks[i];
    if (skip) {
      copy_chunk(job, chunk);
      continue;
    }
    const bool is_large = i < table.large_count;
    NormSums sums = advance_chunk(job, chunk, [&]<int N>(int64_t at, const float(&u)[N]) {
      if (!is_large) store_floats(update + at % kLambChunkElements, u);
    });
    if (add_to_norms(job, chunk, i, sums) && threadIdx.x == 0) {
      publish_step_size(&table.step_of_tensor[chunk.tensor],
                        step_size_of(*job.state, {sums.w2, sums.u2}, chunk));
    }
    if (is_large) continue;
    const float step_size = await_step_size(&table.step_of_tensor[chunk.tensor]);
    for_elements<4>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
      float w[N], u[N];
      load_floats(job.weight + at, w);
      load_floats(update + at % kLambChunkElements, u);
      take_step(job, at, step_size, u, w);
    });
  }
  if (skip) return;
  for (int64_t i = blockIdx.x; i < table.large_count; i += gridDim.x) {
    const LambChunk chunk = table.chunks[i];
    const LambCoefficients c = lamb_coefficients(job.rules, *job.state, chunk.decay != 0);
    const float step_size = await_step_size(&table.step_of_tensor[chunk.tensor]);
    for_elements<2>(chunk, job.vec, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
      float w[N], m[N], v[N], u[N];
      load<Cached::kNo>(job.weight + at, w);
      load<Cached::kNo>(job.m + at, m);
      load<Cached::kNo>(job.v + at, v);
#pragma unroll
      for (int e = 0; e < N; ++e) u[e] = lamb_direction_of(c, w[e], m[e], v[e]);
      take_step(job, at, step_size, u, w);
    });
  }
}

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

}  // namespace
}  // namespace lamb

using namespace lamb;

template <>
void run_cuda(CudaContext& context, const LambStep& args) {
  const int64_t tensors = args.norms.extent(0);
  if (tensors == 0) return;
  dispatch_io(args.gradient.dtype, [&]<class T>(TypeTag<T>) {
    const int64_t resident = resident_blocks(lamb_step_kernel<T>, kThreads);
    const int64_t blocks = std::min<int64_t>(resident, kStepBlocksPerSm) * context.sm_count;
    const LambChunkTable table =
        context.state<LambChunkTables>().table_of(args.segments, tensors, blocks);
    BERTHA_CUDA_CHECK(cudaMemsetAsync(table.step_of_tensor, 0,
                                      static_cast<size_t>(tensors) * sizeof(unsigned long long),
                                      context.stream));
    auto job = norms_job<T, Cached::kNo>(context, args, table, args.model_weight);
    job.model_weight = elements<T>(args.model_weight);
    launch_kernel(context.stream, lamb_step_kernel<T>,
                  {.blocks = std::clamp(table.chunks_count, int64_t{1}, blocks),
                   .threads = kThreads,
                   .is_cooperative = true},
                  job);
  });
}

template <>
void run_cuda(CudaContext& context, const AdamWStep& args) {
  int64_t tensors = 0;
  for (const LambSegment& segment : args.segments) tensors = std::max(tensors, segment.tensor + 1);
  const LambChunkTable table = context.state<LambChunkTables>().table_of(args.segments, tensors);
  if (table.chunks_count == 0) return;
  dispatch_io(args.gradient.dtype, [&]<class T>(TypeTag<T>) {
    auto job = moments_job<T, Cached::kYes>(args, table, args.model_weight);
    job.model_weight = elements<T>(args.model_weight);
    launch_kernel(context.stream, adamw_kernel<T>, {table.chunks_count, kThreads}, job);
  });
}

}  // namespace bertha
