// Sum of squares in one launch: blocks add up fixed parts in f64, the last one to arrive adds the
// parts in their order.
//
// Bound by  memory: 2 (f16, bf16) or 4 bytes per element.
// Figure    336 million elements in bf16, one H200: 158 us, the rate of a copy.

#include "kernels/cuda/common/flat_range.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/operations.h"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerSm = 2;   // one wave of 1,024 threads; more would cost registers
constexpr int kVecsInFlight = 4;  // 64 bytes per thread

template <class T>
__device__ __forceinline__ double square(T value) {
  const double wide = static_cast<double>(to_float(value));
  return wide * wide;
}

template <class T>
struct SumJob {
  const T* values;
  int64_t count;
  double* partials;  // [blocks]
  uint32_t* arrivals;
  double* result;
  bool accumulate;
};

/// This thread's elements, the same ones at every run.
template <class T>
__device__ double thread_sum(const SumJob<T>& job) {
  constexpr int N = kVec16<T>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  // Counted from an aligned address up to 16 bytes before the first element.
  const int64_t offset = elements_past_16_bytes(job.values);
  const T* aligned = job.values - offset;
  const FlatRange range(offset, offset + job.count, N);

  double sums[N] = {};
  const auto* vecs = reinterpret_cast<const Vec<T, N>*>(aligned + range.head);
  const int64_t num_vecs = (range.tail - range.head) / N;
  int64_t p = thread;
  for (; p + (kVecsInFlight - 1) * threads < num_vecs; p += kVecsInFlight * threads) {
    Vec<T, N> loaded[kVecsInFlight];
#pragma unroll
    for (int k = 0; k < kVecsInFlight; ++k) loaded[k] = vecs[p + k * threads];
#pragma unroll
    for (int k = 0; k < kVecsInFlight; ++k) {
#pragma unroll
      for (int e = 0; e < N; ++e) sums[e] += square(loaded[k].elem[e]);
    }
  }
  for (; p < num_vecs; p += threads) {
    const Vec<T, N> vec = vecs[p];
#pragma unroll
    for (int e = 0; e < N; ++e) sums[e] += square(vec.elem[e]);
  }
  if (thread < range.rest()) {
    sums[0] += square(aligned[range.rest_element(static_cast<int>(thread))]);
  }
#pragma unroll
  for (int e = 1; e < N; ++e) sums[0] += sums[e];
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) sum_of_squares_kernel(SumJob<T> job) {
  __shared__ double warp_partials[kWarpThreads];
  const double sum = block_sum(thread_sum(job), warp_partials);
  if (threadIdx.x == 0) job.partials[blockIdx.x] = sum;
  if (!is_last_block(job.arrivals, gridDim.x)) return;

  double rest = 0.0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) rest += __ldcg(&job.partials[i]);
  const double total = block_sum(rest, warp_partials);
  if (threadIdx.x == 0) *job.result = (job.accumulate ? *job.result : 0.0) + total;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const SumOfSquares& args) {
  const int64_t count = args.values.elements();
  dispatch_io(args.values.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t most = int64_t{context.sm_count} * kBlocksPerSm;
    const unsigned blocks = blocks_for(count, kThreads * kVec16<T>, most);
    sum_of_squares_kernel<T><<<blocks, kThreads, 0, context.stream>>>(
        {.values = elements<T>(args.values),
         .count = count,
         .partials = static_cast<double*>(context.scratch.take(most * int64_t{sizeof(double)})),
         .arrivals = context.arrivals.get(),
         .result = args.result.as<double>(),
         .accumulate = args.accumulate == Accumulate::kYes});
  });
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
