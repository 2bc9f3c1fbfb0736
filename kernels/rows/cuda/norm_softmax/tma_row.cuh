#pragma once

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/rows/cuda/norm_softmax/pair_max.cuh"
#include "kernels/rows/cuda/norm_softmax/row_cluster.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// One block per row of 16 bits in shared memory, or a cluster of up to 8, for wide rows at any
// address; the grid is one-shot. A bulk copy brings the row's whole 16-byte words; the elements
// before the first word and after the last are loaded one by one, and padded so that only stores
// need to test for them. Functors take rows of whole words only: the `values` of a Load are applied
// in each pass, and where it has no matrix the threads fill the shared memory.
// With one input, plain operations store their results by a bulk copy too; with two an SM has
// shared memory for one row only, and stores of the threads are faster.
//
// A row has the same offset from a 128-byte line in shared memory as in global memory: other
// offsets cost a fifth of the time. Operations are as in block_per_row.cuh, with TmaRow as the row.
//
// Widths: from 8,193 columns, in clusters where an SM would have one row of one input or none of
// two; rows that begin anywhere in blocks of 64 threads, forward from 1,281 and backward from 762.
//
// Bound by memory: softmax of 49,152 x 30,522 f16 takes 1,462 us on an H200, 97 % of a copy
// (kernels/rows/measured/rows.md).

/// Whether elements are read as they are, and results of their type written to a matrix.
template <class Operation>
inline constexpr bool kIsPlainRow = Operation::kIsPlain&& requires(const Operation& operation) {
  requires std::is_same_v<decltype(operation.store.matrix), typename Operation::Element*>;
};

/// Columns of each block of a cluster but the last: whole lines.
template <class T>
__host__ __device__ constexpr int64_t tma_row_part(int64_t columns, int blocks) {
  const int64_t lines = blocks * kCopyLine<T>;
  return blocks == 1 ? columns : (columns + kMostLead + lines - 1) / lines * kCopyLine<T>;
}

template <class Operation, int kThreads, bool kInCluster>
class TmaRow {
 public:
  using T = typename Operation::Element;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kVecElements = kVecSize;
  static constexpr int kVecs = 1;  // in registers, at a time
  static constexpr bool kInRegisters = false;
  static constexpr bool kHasOneWarp = false;
  static constexpr bool kHasCluster = kInCluster;
  static constexpr int kMostWarps = kThreads / kWarpThreads;
  static constexpr bool kIsPlain = kIsPlainRow<Operation>;
  static constexpr bool kStoresInBulk = kIsPlain && kInputs == 1;
  struct Shared {
    uint64_t loaded;
    WarpExchange<float, 2, kMostWarps> exchange;
    std::conditional_t<kInCluster, RowCluster, int> cluster;
  };

  /// The addresses of all operands differ by multiples of 16 bytes; with functors they are such
  /// multiples, and the columns one of 8.
  __device__ TmaRow(const Operation& operation, int blocks, int columns, uint4* cells,
                    Shared& shared)
      : operation_(operation),
        shared_(shared),
        blocks_(kInCluster ? blocks : 1),
        row_(static_cast<int>(blockIdx.x) / blocks_),
        thread_(static_cast<int>(threadIdx.x)) {
    const int64_t at = row_ * columns;
    const int part = static_cast<int>(tma_row_part<T>(columns, blocks_));
    slot_ = static_cast<int>(line_slot<T>(part));
    uintptr_t address = 0;
    if constexpr (Operation::kHasMatrices) {
      address = reinterpret_cast<uintptr_t>(operation.matrix(0) + at);
    }
    first_ = static_cast<int>(address % 16 / sizeof(T));
    cells_ = reinterpret_cast<T*>(cells) + address % kCopyLineBytes / 16 * kVecSize;
    at_ = at - first_;
    end_ = first_ + columns;
    if constexpr (kInCluster) {
      shared_.cluster.begin(blocks_);
      column_ = static_cast<int>(blockIdx.x) % blocks_ * part;
      at_ += column_;
      first_ = max(first_ - column_, 0);
      end_ = min(end_ - column_, part);
    }
    begin_whole_ = (first_ + kVecSize - 1) / kVecSize;
    end_whole_ = end_ / kVecSize;
    if constexpr (!Operation::kHasMatrices) {
      // Each thread reads the vectors again that it stores here.
      for (int p = thread_; p * kVecSize < end_; p += kThreads) {
#pragma unroll
        for (int k = 0; k < kInputs; ++k) {
          store_vec(vec(k, p), operation.template fetch_input<kVecSize>(k, place_of(p)));
        }
      }
    } else {
      copy_row();
    }
    if constexpr (kInCluster) RowCluster::wait_for_all();
  }

  __device__ __forceinline__ void for_vecs(const auto& work) const {
#pragma unroll 2
    for (int p = thread_; p * kVecSize < end_; p += kThreads) {
      float v[kInputs][kVecSize];
      Vec<T, kVecSize> raw[kInputs];
      for (int k = 0; k < kInputs; ++k) raw[k] = load_vec(vec(k, p));
      operation_.values(place_of(p), raw, v);
      work(p, v);
    }
  }
  __device__ __forceinline__ float largest() const {
    if constexpr (Operation::kIsPlain) {
      uint32_t most = minus_infinity_pair<T>();
#pragma unroll 4
      for (int p = thread_; p * kVecSize < end_; p += kThreads) {
        most = larger_pair(load_vec(vec(0, p)), most);
      }
      return larger_of_pair<T>(most);
    } else {
      float top = -INFINITY;
      for_vecs([&](int, auto& v) {
        for (int i = 0; i < kVecSize; ++i) top = fmaxf(top, v[0][i]);
      });
      return top;
    }
  }
  __device__ __forceinline__ void keep_packed() const {}

  __device__ __forceinline__ void store(int p, const float (&values)[kVecSize]) const {
    if constexpr (kIsPlain) {
      store_plain(p, values);
    } else {
      put(operation_.store, place_of(p), values);
    }
  }

  template <int K>
  __device__ __forceinline__ void exchange(const float (&own)[K], float (&part)[K]) const {
    exchange_warps(own, part, shared_.exchange, 0, kMostWarps, [] { __syncthreads(); });
  }
  template <int K>
  __device__ __forceinline__ void exchange_blocks(const float (&own)[K], float (&part)[K]) const {
    shared_.cluster.exchange(own, part, blocks_);
  }
  template <int K, class Combine>
  __device__ __forceinline__ void reduce(float (&values)[K], const Combine& combine) const {
    block_reduce(values, combine, shared_.exchange);
    if constexpr (kInCluster) shared_.cluster.reduce(values, combine, blocks_);
  }

  /// After the last pass.
  __device__ __forceinline__ void finish() const {
    if constexpr (kStoresInBulk) {
      fence_proxy_async();
      __syncthreads();
      if (thread_ != 0) return;
      bulk_store(operation_.store.matrix + at_ + begin_whole_ * kVecSize,
                 shared_address(vec(0, begin_whole_)), whole_bytes());
      bulk_store_wait();
    }
  }

 private:
  __device__ RowPlace place_of(int p) const {
    return {row_, column_ + p * kVecSize, at_ + p * kVecSize};
  }
  __device__ bool has(int cell) const { return cell >= first_ && cell < end_; }
  __device__ bool is_whole(int p) const { return p >= begin_whole_ && p < end_whole_; }
  __device__ T* vec(int input, int p) const { return cells_ + input * slot_ + p * kVecSize; }
  __device__ uint32_t whole_bytes() const {
    return static_cast<uint32_t>((end_whole_ - begin_whole_) * 16);
  }
  /// The row's whole words in bulk, the rest by the threads that work on partial vectors.
  __device__ __forceinline__ void copy_row() const {
    const uint32_t loaded = shared_address(&shared_.loaded);
    if (thread_ == 0) {
      mbarrier_init(loaded, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(loaded, kInputs * whole_bytes());
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        bulk_load(shared_address(cells_ + k * slot_ + begin_whole_ * kVecSize),
                  operation_.matrix(k) + at_ + begin_whole_ * kVecSize, whole_bytes(), loaded);
      }
    }
    load_edge(0);
    load_edge((end_ - 1) / kVecSize);
    __syncthreads();  // the barrier is initialised
    mbarrier_wait(loaded, 0);
  }
  __device__ __forceinline__ void store_plain(int p, const float (&values)[kVecSize]) const {
    const Vec<T, kVecSize> rounded = to_vec<T>(values);
    T* const to = operation_.store.matrix + at_ + p * kVecSize;
    if constexpr (kStoresInBulk) store_vec(vec(0, p), rounded);
    if (is_whole(p)) {
      if constexpr (!kStoresInBulk) store_vec(to, rounded);
      return;
    }
    for (int i = 0; i < kVecSize; ++i) {
      if (has(p * kVecSize + i)) to[i] = from_float<T>(values[i]);
    }
  }
  __device__ __forceinline__ void load_edge(int p) const {
    if (p % kThreads != thread_ || is_whole(p)) return;
    Vec<T, 2> padding;
    padding.word[0] = operation_.padding();
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      for (int i = 0; i < kVecSize; ++i) {
        const int cell = p * kVecSize + i;
        cells_[k * slot_ + cell] = has(cell) ? operation_.matrix(k)[at_ + cell] : padding.elem[0];
      }
    }
  }

  const Operation& operation_;
  int64_t at_;  // of the first cell's element in the operands
  T* cells_;    // of the first input; the others' follow
  int slot_;    // cells of an input
  Shared& shared_;
  int blocks_;  // of the row
  int64_t row_;
  int thread_;
  int column_ = 0;   // of the first cell
  int first_;        // cell of the row
  int end_;          // past its last cell
  int begin_whole_;  // the first vector of the row that is not partial
  int end_whole_;    // past the last
};

template <class Operation, int kThreads, int kBlocks, bool kInCluster>
__global__ void __launch_bounds__(kThreads, kBlocks)
    tma_row_kernel(const __grid_constant__ Operation operation, int columns, int cluster) {
#if __CUDA_ARCH__ == 900  // bulk copies; portable kernels are other ones
  using Row = TmaRow<Operation, kThreads, kInCluster>;
  extern __shared__ __align__(kCopyLineBytes) uint4 cells[];
  __shared__ typename Row::Shared shared;
  Row row(operation, cluster, columns, cells, shared);
  operation.run(row);
  row.finish();
#else
  __trap();
#endif
}

/// Shared memory of a row, or of a block's part of it.
template <class Operation>
int64_t tma_row_bytes(int64_t columns, int blocks = 1) {
  using T = typename Operation::Element;
  return line_slot<T>(tma_row_part<T>(columns, blocks)) * 2 * Operation::kInputs;
}

template <int kThreads, int kBlocks, bool kInCluster = false, class Operation>
void launch_tma_row(const CudaContext& context, const Operation& operation, int64_t rows,
                    int64_t columns, int blocks = 1) {
  launch_kernel(
      context.stream, tma_row_kernel<Operation, kThreads, kBlocks, kInCluster>,
      {rows * blocks, kThreads, tma_row_bytes<Operation>(columns, blocks), kInCluster ? blocks : 0},
      operation, static_cast<int>(columns), blocks);
}

}  // namespace bertha
