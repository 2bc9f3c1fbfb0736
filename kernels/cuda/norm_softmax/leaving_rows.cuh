#pragma once

#include "kernels/cuda/common/raw_pack.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// The skeleton of plain operations on rows of 16 bits that are too wide for a warp: a block has a
// row in registers, in the words that it has in memory, and leaves when the row is done. While it
// waits for memory other blocks of the SM are at work.
//
// An operation is a value that the kernel gets as its argument:
//   Element, kInputs, inputs   its rows: kInputs matrices [rows, columns]
//   output                     where its result begins; may be an input
//   absent()                   a pair of elements that changes no result: what stands beyond a row
//   run(row)                   its passes, in terms of LeavingRow
//
// Deterministic: every order of summation follows from the width alone.

/// A row of at most kThreads * 8 * kPacks columns.
template <class Operation, int kPackCount, int kThreads>
class LeavingRow {
 public:
  using T = typename Operation::Element;
  using Raw = RawPack<T, 8>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = 8;
  static constexpr int kPacks = kPackCount;
  static constexpr bool kInRegisters = true;
  static constexpr int kMeetingLanes = kThreads / kWarpThreads;
  static_assert((kMeetingLanes & (kMeetingLanes - 1)) == 0, "lanes are combined in pairs");
  using Parts = float[kMeetingLanes][2];

  __device__ LeavingRow(const Operation& operation, int64_t row, int columns, Parts& parts)
      : to_(operation.output + row * columns),
        columns_(columns),
        parts_(parts),
        from_(operation.inputs[0] + row * columns) {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      const T* const from = operation.inputs[k] + row * columns;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        own_[k][p].fill(operation.absent());
        if (has(p)) own_[k][p].load(from + column_of(p));
      }
    }
  }

  /// work(p, v) for the thread's packs, with numbers v[kInputs][8]; of packs beyond the row absent
  /// ones.
  template <class Work>
  __device__ __forceinline__ void for_packs(const Work& work) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float v[kInputs][8];
#pragma unroll
      for (int k = 0; k < kInputs; ++k) own_[k][p].unpack(v[k]);
      work(p, v);
    }
  }
  /// work(p) for the thread's packs.
  template <class Work>
  __device__ __forceinline__ void for_own_packs(const Work& work) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) work(p);
  }
  /// The largest of the thread's elements of the first input, of which NaN is none.
  __device__ __forceinline__ float largest() const {
    uint32_t most = RawPack<T, 2>::least_pair();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) most = own_[0][p].larger(most);
    return RawPack<T, 2>::larger_of_pair(most);
  }
  /// Between passes, where unpacking again is cheaper than the registers of the numbers.
  __device__ __forceinline__ void keep_packed() {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) own_[k][p].keep();
    }
  }
  /// Whether pack p has columns of the row, and the first of them.
  __device__ __forceinline__ bool has(int p) const { return column_of(p) < columns_; }
  __device__ __forceinline__ int column_of(int p) const {
    return (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
  }
  __device__ int columns() const { return columns_; }
  /// An element of the first input, of any thread.
  __device__ __forceinline__ float element(int column) const { return to_float(from_[column]); }
  /// The result of pack p.
  __device__ __forceinline__ void store(int p, const float (&values)[8]) const {
    Raw raw;
    raw.pack(values);
    if (has(p)) raw.store(to_ + column_of(p));
  }

  /// Once: every warp leaves K numbers, the same in its lanes, and a lane gets those of a warp;
  /// where there are fewer warps than kMeetingLanes, some keep what is in `part`.
  template <int K>
  __device__ __forceinline__ void meet(const float (&own)[K], float (&part)[K]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < K; ++k) parts_[threadIdx.x / kWarpThreads][k] = own[k];
    }
    __syncthreads();
    const int other = lane % kMeetingLanes;
    if (other * kWarpThreads >= static_cast<int>(blockDim.x)) return;
#pragma unroll
    for (int k = 0; k < K; ++k) part[k] = parts_[other][k];
  }

 private:
  T* to_;
  int columns_;
  Parts& parts_;
  const T* from_;
  Raw own_[kInputs][kPacks];
};

template <class Operation, int kPacks, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    leaving_rows_kernel(const __grid_constant__ Operation operation, int columns) {
  using Row = LeavingRow<Operation, kPacks, kThreads>;
  __shared__ typename Row::Parts parts;
  Row row(operation, blockIdx.x, columns, parts);
  operation.run(row);
}

/// With kThreads, or as many fewer as the columns need.
template <int kPacks, int kThreads, int kBlocks, class Operation>
void launch_leaving_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                         int64_t columns) {
  const unsigned warps = blocks_for(columns, kPacks * 8 * kWarpThreads, kThreads / kWarpThreads);
  leaving_rows_kernel<Operation, kPacks, kThreads, kBlocks>
      <<<static_cast<unsigned>(rows), warps * kWarpThreads, 0, context.stream>>>(
          operation, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
