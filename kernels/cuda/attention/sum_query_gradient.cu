// dQ from the parts that the split persistent backward has stored, one for each 128 keys, added up
// in the order of keys; and its column sums. A block per (64 queries, head, sequence): 8 threads
// have a row, all parts of a thread's two rows are in flight at once.
//
// Bound by  latency: 1,024 tokens in 4 sequences, 16 heads, are some 10 MB and 300 blocks.

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/cuda/attention/kernels.h"

namespace bertha {
namespace {

constexpr int kHeadSize = 64;  // at most: threads past the head idle
constexpr int kRows = 64;      // per block
constexpr int kKeysOfPart = 128;
constexpr int kThreads = 256;
constexpr int kThreadsOfRow = kHeadSize / kVecSize;
constexpr int kRowsAtOnce = kThreads / kThreadsOfRow;
constexpr int kRowsOfThread = kRows / kRowsAtOnce;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kOutputs = 3;  // dQ, dK, dV

/// grid: sequences; tiles of 64 rows; heads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_query_gradient_kernel(const __grid_constant__ AttentionBwdParams params) {
  __shared__ alignas(16) float of_warp[kWarps][kHeadSize];
  wait_for_kernel_before();
  begin_next_kernel();
  const AttentionBatch& batch = params.batch;
  const int seq = static_cast<int>(blockIdx.x);
  const int tile = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.z);
  const int thread = static_cast<int>(threadIdx.x);
  const int head_size = batch.head_size;
  const int begin = batch.cu_seqlens[seq];
  const int length = batch.cu_seqlens[seq + 1] - begin;
  const auto sums_of = [&](int part) {
    const int64_t row = int64_t{seq} * kColumnSumsOfSplitSeq + tile;
    return params.column_sums + ((row * kOutputs + part) * batch.heads + head) * head_size;
  };
  if (tile * kRows >= length) {  // no tile of the sequence
    if (params.column_sums != nullptr && thread < kOutputs * head_size) {
      sums_of(thread / head_size)[thread % head_size] = 0.0f;
    }
    return;
  }
  const int parts = (length + kKeysOfPart - 1) / kKeysOfPart;
  const int column = head * head_size + thread % kThreadsOfRow * kVecSize;
  const int width = batch.heads * head_size;
  const int first_row = tile * kRows + thread / kThreadsOfRow;
  const int end = thread % kThreadsOfRow * kVecSize < head_size ? length : 0;  // end of its rows
  Vec<float, kVecSize> loaded[kRowsOfThread][kMaxKeyParts] = {};
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int row = first_row + i * kRowsAtOnce;
    if (row >= end) continue;
#pragma unroll
    for (int part = 0; part < kMaxKeyParts; ++part) {
      if (part >= parts) continue;
      const int64_t token = part * batch.tokens + begin + row;
      loaded[i][part] = load_vec(params.dquery_parts + token * width + column);
    }
  }
  float sums[kVecSize] = {};
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const int row = first_row + i * kRowsAtOnce;
    if (row >= end) continue;
    float values[kVecSize];
#pragma unroll
    for (int j = 0; j < kVecSize; ++j) {
      values[j] = element(loaded[i][0], j);
#pragma unroll
      for (int part = 1; part < kMaxKeyParts; ++part) values[j] += element(loaded[i][part], j);
      values[j] *= params.scale;
    }
    const Vec<T, kVecSize> rounded = to_vec<T>(values);
    store_vec(static_cast<T*>(params.dqkv) + int64_t{begin + row} * kOutputs * width + column,
              rounded);
#pragma unroll
    for (int j = 0; j < kVecSize; ++j) sums[j] += element(rounded, j);
  }
  if (params.column_sums == nullptr) return;
#pragma unroll
  for (int j = 0; j < kVecSize; ++j) {
    sums[j] += __shfl_xor_sync(kFullWarp, sums[j], kThreadsOfRow);
    sums[j] += __shfl_xor_sync(kFullWarp, sums[j], 2 * kThreadsOfRow);
  }
  if (thread % kWarpThreads < kThreadsOfRow) {
    store_vec(&of_warp[thread / kWarpThreads][thread % kThreadsOfRow * kVecSize],
              to_vec<float>(sums));
  }
  __syncthreads();
  if (thread >= head_size) return;
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += of_warp[warp][thread];
  sums_of(0)[thread] = total;
}

}  // namespace

void launch_sum_query_gradient(const PersistentLaunch& on, const AttentionBwdParams& params) {
  const AttentionBatch& batch = params.batch;
  dispatch_16bit(on.dtype, [&]<class T>(TypeTag<T>) {
    launch_dependent(on.stream, sum_query_gradient_kernel<T>,
                     {{batch.seqs, kColumnSumsOfSplitSeq, batch.heads}, kThreads}, params);
  });
}

}  // namespace bertha
