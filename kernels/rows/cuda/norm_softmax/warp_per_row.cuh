#pragma once

#include "kernels/rows/cuda/norm_softmax/block_per_row.cuh"

namespace bertha {

// A warp, or a power of two of its lanes, per row of 16 bits: the row stays in registers, as the
// words that it is in memory, or as the numbers that a Load makes of them. The lanes of a row are
// known when the kernel is compiled; the grid is one-shot. Operations are as in block_per_row.cuh,
// with WarpPerRow as the row.
//
// Widths: up to 1,024 columns, 1,273 that begin anywhere; single elements, for narrow odd rows, and
// functors of odd rows up to 544 columns.
//
// Bound by memory: softmax of 49,152 x 1,024 f16 takes 53 us on an H200, 98 % of a copy
// (kernels/rows/measured/rows.md, with the neighbours at each boundary).

/// A row of at most kLanes * kVecCount * N columns, a multiple of N; with kInWords, of any number
/// up to kMostLead fewer.
template <class Operation, int kLanes, int N, int kVecCount, bool kInWords>
class WarpPerRow : public HeldVecs<Operation, N, kVecCount, kInWords> {
 public:
  static constexpr bool kHasOneWarp = true;

  __device__ WarpPerRow(const Operation& operation, int64_t row, int64_t rows, int columns)
      : operation_(operation),
        row_(row),
        at_(row * columns),
        end_(row < rows ? columns : 0),  // the shuffles are of whole warps
        lane_(static_cast<int>(threadIdx.x) % kLanes) {
    if constexpr (kInWords) lead_ = row < rows ? lead_of(operation.matrix(0) + at_) : 0;
    this->hold_vecs(
        operation, rows, columns, [&](int p) { return column_of(p) < end_; },
        [&](int p) { return place_of(p); });
  }

  __device__ __forceinline__ void keep_packed() const {}
  /// For every p, in order.
  __device__ __forceinline__ void store(int p, const float (&values)[N]) {
    if constexpr (kDrawsOnStore<Operation>) {
      // A lane draws one word of its row, which has at most as many words as lanes.
      static_assert(kVecCount * N <= 32);
      const int words = (end_ + 31) / 32;
      if (p == 0 && lane_ < words && operation_.store.drops()) {
        drawn_ = operation_.store.draw(row_, lane_, words);
      }
      const uint32_t word = __shfl_sync(kFullWarp, drawn_, column_of(p) / 32, kLanes);
      if (column_of(p) >= end_) return;
      operation_.store.template store<N>(place_of(p), values, word >> (column_of(p) % 32));
    } else {
      if (column_of(p) >= end_) return;
      if constexpr (kInWords) {
        put_columns<true>(operation_.store, place_of(p), end_, values);
      } else {
        put(operation_.store, place_of(p), values);
      }
    }
  }
  template <int K, class Combine>
  __device__ __forceinline__ void reduce(float (&values)[K], const Combine& combine) const {
    reduce_lanes(values, kLanes, combine);
  }

 private:
  __device__ __forceinline__ int column_of(int p) const { return (p * kLanes + lane_) * N - lead_; }
  __device__ __forceinline__ RowPlace place_of(int p) const {
    return {row_, column_of(p), at_ + column_of(p)};
  }

  const Operation& operation_;
  int64_t row_;
  int64_t at_;
  int end_;
  int lane_;
  int lead_ = 0;  // columns of the first vector before the row
  uint32_t drawn_ = 0;
};

template <class Operation, int kLanes, int N, int kVecs, int kThreads, bool kInWords>
__global__ void __launch_bounds__(kThreads)
    warp_per_row_kernel(const __grid_constant__ Operation operation, int64_t rows, int columns) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes);
  WarpPerRow<Operation, kLanes, N, kVecs, kInWords> row(
      operation, first + static_cast<int>(threadIdx.x) / kLanes, rows, columns);
  operation.run(row);
}

/// With kLanes lanes, or as many more as the columns need.
template <int kLanes, int N, int kVecs, int kThreads = 128, bool kInWords = false, class Operation>
void launch_warp_per_row(const CudaContext& context, const Operation& operation, int64_t rows,
                         int64_t columns) {
  if constexpr (kLanes < kWarpThreads) {
    if (columns + (kInWords ? kMostLead : 0) > kLanes * kVecs * N) {
      return launch_warp_per_row<2 * kLanes, N, kVecs, kThreads, kInWords>(context, operation, rows,
                                                                           columns);
    }
  }
  launch_kernel(
      context.stream, warp_per_row_kernel<Operation, kLanes, N, kVecs, kThreads, kInWords>,
      {blocks_for(rows, kThreads / kLanes), kThreads}, operation, rows, static_cast<int>(columns));
}

}  // namespace bertha
