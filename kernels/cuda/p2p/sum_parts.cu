// The sum of buffers of several ranks that copies have brought to this GPU. Every part is read once
// and the sum written once. Bound by memory. A one-shot grid of short blocks, so that other kernels
// are not kept waiting.

#include "kernels/cuda/p2p/sum_parts.h"

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/handles.h"
#include "kernels/base/cuda/vec.cuh"

namespace bertha {
namespace {

constexpr int kThreads = 256;

template <class T>
struct SumJob {
  const T* parts[kMaxSumParts];
  T* sum;
  int64_t count;
  const float* factors;  // null: 1
};

template <class T, int kParts>
__global__ void __launch_bounds__(kThreads) sum_parts_kernel(SumJob<T> job) {
  float factors[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    factors[part] = job.factors == nullptr ? 1.0f : job.factors[part];
  }
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVecSize;
  if (first + kVecSize <= job.count) {
    Vec<T, kVecSize> loaded[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      loaded[part] = load_vec_streaming(job.parts[part] + first);
    }
    float sums[kVecSize] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) sums[i] += factors[part] * element(loaded[part], i);
    }
    store_vec(job.sum + first, to_vec<T>(sums));
    return;
  }
  for (int64_t i = first; i < job.count; ++i) {
    float sum = 0.0f;
    for (int part = 0; part < kParts; ++part) sum += factors[part] * to_float(job.parts[part][i]);
    job.sum[i] = from_float<T>(sum);
  }
}

template <class T, int kParts = 1>
void launch(cudaStream_t stream, int parts, const SumJob<T>& job) {
  if constexpr (kParts <= kMaxSumParts) {
    if (parts != kParts) return launch<T, kParts + 1>(stream, parts, job);
    launch_kernel(stream, sum_parts_kernel<T, kParts>,
                  {blocks_for(job.count, kThreads * kVecSize), kThreads}, job);
  }
}

}  // namespace

void sum_parts(Stream& stream, std::span<const void* const> parts, const View& sum,
               const float* factors) {
  BERTHA_CHECK(!parts.empty() && parts.size() <= kMaxSumParts, parts.size(), " parts, want 1 to ",
               kMaxSumParts);
  if (sum.elements() == 0) return;
  dispatch_io(sum.dtype, [&]<class T>(TypeTag<T>) {
    SumJob<T> job{
        .parts = {}, .sum = elements<T>(sum), .count = sum.elements(), .factors = factors};
    for (size_t i = 0; i < parts.size(); ++i) job.parts[i] = static_cast<const T*>(parts[i]);
    launch<T>(native(stream), static_cast<int>(parts.size()), job);
  });
}

}  // namespace bertha
