#pragma once

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/rows/cuda/norm_softmax/pair_max.cuh"
#include "kernels/rows/cuda/norm_softmax/row_cluster.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// One block per row that is too wide for a warp, or a cluster of up to 8 blocks: the row stays in
// registers, as the words that it is in memory, or as the numbers that a Load makes of them. Rows
// are of a multiple of 8 columns at 16-byte aligned addresses, or of matrices of 16 bits and begin
// anywhere (kInWords, row_words.cuh). The grid is one-shot; while a block waits for memory the
// other blocks of the SM are at work.
//
// An operation is a value that the kernel gets as its argument:
//   OneInput or TwoInputs      its rows, the base class
//   store                      where its results go; may be a matrix of the input
//   padding()                  a 32-bit word of elements that changes no result, beyond the row
//   run(row)                   its passes, in terms of BlockPerRow
//
// Widths: from 1,025 columns to 8,192 (LayerNorm forward 16,384), on sm_90a in clusters to 131,072
// (LayerNorm forward, and softmax that drops).
//
// Bound by memory: softmax of 49,152 x 4,096 f16 takes 200 us on an H200, 97 % of a copy
// (kernels/rows/measured/rows.md).

/// The vectors of a row that a thread holds in registers, N columns each.
template <class Operation, int N, int kVecCount, bool kInWords>
class HeldVecs {
 public:
  using T = typename Operation::HeldElement;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kVecElements = N;
  static constexpr int kVecs = kVecCount;
  static constexpr bool kInRegisters = true;

  /// work(p, v) for the thread's vectors, with numbers v[kInputs][N]; beyond the row, of padding.
  __device__ __forceinline__ void for_vecs(const auto& work) const {
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      float v[kInputs][N];
      for (int k = 0; k < kInputs; ++k) to_floats(own_[k][p], v[k]);
      work(p, v);
    }
  }
  /// The largest of the thread's elements of the first input, of which NaN is none.
  __device__ __forceinline__ float largest() const { return largest_of(own_[0]); }

 protected:
  /// Reads the vectors that the row has, at place_of(p), and fills the others with padding.
  __device__ __forceinline__ void hold_vecs(const Operation& operation, int64_t rows, int columns,
                                            const auto& has, const auto& place_of) {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
#pragma unroll
      for (int p = 0; p < kVecs; ++p) {
        fill_words(own_[k][p], operation.padding());
        if (!has(p)) continue;
        if constexpr (kInWords) {
          own_[k][p] = load_word(operation.matrix(k), place_of(p).dense, rows * columns);
        } else {
          own_[k][p] = operation.template hold_input<N>(k, place_of(p));
        }
      }
    }
    if constexpr (kInWords) {
#pragma unroll
      for (int p = 0; p < kVecs; ++p) {
        const int column = static_cast<int>(place_of(p).column);
        if (!has(p) || has_all_columns(column, columns)) continue;
#pragma unroll
        for (int k = 0; k < kInputs; ++k) {
          keep_columns(own_[k][p], column, columns, operation.padding());
        }
      }
    }
  }

  Vec<T, N> own_[kInputs][kVecs];
};

/// A row of at most kThreads * 8 * kVecCount columns, times the blocks of the cluster.
template <class Operation, int kVecCount, int kThreads, bool kInWords, bool kInCluster>
class BlockPerRow : public HeldVecs<Operation, kVecSize, kVecCount, kInWords> {
  using Base = HeldVecs<Operation, kVecSize, kVecCount, kInWords>;
  using Base::own_;

 public:
  using Base::kInputs;
  using Base::kVecs;
  using T = typename Base::T;
  static constexpr bool kHasOneWarp = false;
  static constexpr bool kHasCluster = kInCluster;
  static constexpr int kMostWarps = kThreads / kWarpThreads;
  struct Exchange {
    WarpExchange<float, 2, kMostWarps> warps;
    RowCluster cluster;
  };

  __device__ BlockPerRow(const Operation& operation, int cluster, int columns, Exchange& exchange)
      : operation_(operation),
        blocks_(kHasCluster ? cluster : 1),
        row_(static_cast<int>(blockIdx.x) / blocks_),
        at_(row_ * columns),
        columns_(columns),
        exchange_(exchange) {
    if constexpr (kHasCluster) {
      exchange.cluster.begin(blocks_);
      first_ = rank() * static_cast<int>(blockDim.x) * (kVecs * kVecSize);
    }
    if constexpr (kInWords) first_ -= lead_of(operation.matrix(0) + at_);
    this->hold_vecs(
        operation, gridDim.x / blocks_, columns, [&](int p) { return has(p); },
        [&](int p) { return place_of(p); });
    if constexpr (kHasCluster) RowCluster::wait_for_all();
  }

  /// Adds the row of another matrix to the first input, rounded.
  __device__ __forceinline__ void add(const T* matrix) {
    Vec<T, kVecSize> other[kVecs] = {};
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      if (has(p)) other[p] = load_vec(matrix + at_ + column_of(p));
    }
#pragma unroll
    for (int p = 0; p < kVecs; ++p) own_[0][p] = sum_of(own_[0][p], other[p]);
  }
  /// Between passes, where unpacking again is cheaper than the registers of the numbers.
  __device__ __forceinline__ void keep_packed() {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
#pragma unroll
      for (int p = 0; p < kVecs; ++p) bertha::keep_packed(own_[k][p]);
    }
  }
  /// Whether vector p has columns of the row, and the first of them.
  __device__ __forceinline__ bool has(int p) const { return column_of(p) < columns_; }
  __device__ __forceinline__ int column_of(int p) const {
    return (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVecSize + first_;
  }
  /// Replaces the numbers of vector p that are not the row's.
  __device__ __forceinline__ void keep_columns(int p, float (&v)[kVecSize], float other) const {
    if constexpr (kInWords) bertha::keep_columns(v, column_of(p), columns_, other);
  }
  __device__ int columns() const { return columns_; }
  __device__ int64_t row() const { return row_; }
  /// Whether this thread stores what a row has once.
  __device__ bool is_first() const { return rank() == 0 && threadIdx.x == 0; }
  /// From memory, the element of a Load's rows whose column is the lane of the thread.
  __device__ __forceinline__ float element_of_lane(const auto& load) const {
    const int64_t lane = threadIdx.x % kWarpThreads;
    return element(hold<1>(load, RowPlace{row_, lane, at_ + lane}), 0);
  }
  /// The result of vector p, if the row has it; where it draws, for every p in order.
  __device__ __forceinline__ void store(int p, const float (&values)[kVecSize]) {
    if constexpr (kDrawsOnStore<Operation>) {
      // Four lanes share a word of each p; the lane of that number among them draws it.
      static_assert(kVecs <= 4);
      const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
      const int own = lane % 4;
      const int own_word = column_of(own) / 32;
      const int words = (columns_ + 31) / 32;
      if (p == 0 && own < kVecs && own_word < words && operation_.store.drops()) {
        drawn_ = operation_.store.draw(row_, own_word, words);
      }
      const uint32_t word = __shfl_sync(kFullWarp, drawn_, lane - own + p);
      if (has(p)) operation_.store.template store<kVecSize>(place_of(p), values, word >> (own * 8));
    } else {
      if (has(p)) put_columns<kInWords>(operation_.store, place_of(p), columns_, values);
    }
  }
  /// Vector p of the first input, to another matrix.
  __device__ __forceinline__ void store_input(int p, T* to) const {
    store_vec(to + at_ + column_of(p), own_[0][p]);
  }

  /// Once each, or with turns that count from 0: see exchange_warps and block_reduce.
  template <int K>
  __device__ __forceinline__ void exchange(const float (&own)[K], float (&part)[K]) const {
    exchange_warps(own, part, exchange_.warps, 0, static_cast<int>(blockDim.x) / kWarpThreads,
                   [] { __syncthreads(); });
  }
  /// The same with the other blocks of the cluster.
  template <int K>
  __device__ __forceinline__ void exchange_blocks(const float (&own)[K], float (&part)[K]) const {
    exchange_.cluster.exchange(own, part, blocks_);
  }
  template <int K, class Combine>
  __device__ __forceinline__ void reduce(float (&values)[K], const Combine& combine,
                                         int turn = 0) const {
    block_reduce(values, combine, exchange_.warps, turn);
    if constexpr (kHasCluster) exchange_.cluster.reduce(values, combine, blocks_, turn);
  }

 private:
  __device__ __forceinline__ int rank() const {
    return kHasCluster ? static_cast<int>(blockIdx.x) % blocks_ : 0;
  }
  __device__ __forceinline__ RowPlace place_of(int p) const {
    return {row_, column_of(p), at_ + column_of(p)};
  }

  const Operation& operation_;
  int blocks_;  // of the row
  int64_t row_;
  int64_t at_;
  int columns_;
  int first_ = 0;  // column of the block; negative where a row begins within a word
  Exchange& exchange_;
  uint32_t drawn_ = 0;
};

template <class Operation, int kVecs, int kThreads, int kBlocks, bool kInWords, bool kInCluster>
__global__ void __launch_bounds__(kThreads, kBlocks)
    block_per_row_kernel(const __grid_constant__ Operation operation, int columns, int cluster) {
  if constexpr (!kInCluster || kIsSm90aCode) {
    using Row = BlockPerRow<Operation, kVecs, kThreads, kInWords, kInCluster>;
    __shared__ typename Row::Exchange exchange;
    Row row(operation, cluster, columns, exchange);
    operation.run(row);
  } else {
    __trap();
  }
}

/// With kThreads, or as many fewer as the columns need; kBlocks of an SM have registers.
template <int kVecs, int kThreads, int kBlocks, bool kInWords = false, bool kInCluster = false,
          class Operation>
void launch_block_per_row(const CudaContext& context, const Operation& operation, int64_t rows,
                          int64_t columns) {
  const int64_t reach = columns + (kInWords ? kMostLead : 0);
  int cluster = 1;
  while (kInCluster && cluster * kThreads * kVecs * kVecSize < reach) cluster *= 2;
  const unsigned warps =
      blocks_for(reach, cluster * kVecs * kVecSize * kWarpThreads, kThreads / kWarpThreads);
  launch_kernel(context.stream,
                block_per_row_kernel<Operation, kVecs, kThreads, kBlocks, kInWords, kInCluster>,
                {rows * cluster, warps * kWarpThreads, 0, kInCluster ? cluster : 0}, operation,
                static_cast<int>(columns), cluster);
}
/// Widest rows of a cluster.
template <int kVecs, int kThreads>
inline constexpr int64_t kMostClusterColumns = int64_t{kMostRowCluster} * kThreads* kVecs* kVecSize;

}  // namespace bertha
