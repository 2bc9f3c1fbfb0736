#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/compute.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/shared_memory.cuh"

namespace bertha {

// The skeleton of operations on rows of any width: softmax, and the LayerNorm of widths that
// row_team.cuh does not take. The width chooses where a row stays between its passes:
//   in registers      of a warp or a power of two of its lanes, one or two rows at a time;
//   in shared memory  of a block, in its own type: as it lies in memory, so that neighbours in a
//                     warp read neighbouring words and meet no bank twice;
//   nowhere           the block reads it again for each pass.
//
// An operation is a value that the kernel gets as its argument:
//   Element, kInputs       its rows: kInputs matrices [rows, columns] of one type
//   inputs                 where they begin
//   values(raw, row, column, v)   one pack of every input as numbers v[kInputs][N]: its Load
//   kDrops, drops(), draw(row, word, words)   with for_packs_with_bits only: whether it draws
//                          dropout while storing, 32 decisions at a time, `words` for a row
//   run(row_or_rows)       its passes, in terms of for_packs and reduce below
//
// Deterministic: every order of summation follows from the width alone.

// Boundaries between the three, and sizes of blocks: reasoned, not yet measured.
inline constexpr int kFewElements = 8;    // of a thread, for two rows at a time
inline constexpr int kManyElements = 32;  // of a thread, for one row: all the columns of one warp
inline constexpr int kRegisterThreads = 128;
inline constexpr int kRegisterBlocks = 64;  // of a multiprocessor, in a few waves
inline constexpr int kMostBlockThreads = 512;
inline constexpr int kPacksPerThread = 4;  // of a block, before it gets more threads
inline constexpr int64_t kMostRowCacheBytes = 220 * 1024;  // of 227 KiB; the rest is for exchange
inline constexpr int64_t kMostRowBlocks = int64_t{1} << 30;

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN as second operand loses.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// Combines each value over `lanes` neighbours, a power of two; the result in all of them. All
/// lanes of the warp call it.
template <int K, class T, class Combine>
__device__ __forceinline__ void reduce_lanes(T (&values)[K], int lanes, const Combine& combine) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    if (step >= lanes) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      values[k] = combine(values[k], __shfl_xor_sync(kFullWarp, values[k], step));
    }
  }
}

/// kRowCount rows in the registers of `lanes` threads, kElements columns each, in packs of N.
template <class Operation, int N, int kElements, int kRowCount>
class RegisterRows {
 public:
  using T = typename Operation::Element;
  using Number = Compute<T>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = N;
  static constexpr int kRows = kRowCount;
  static constexpr int kPacks = kElements / N;
  static constexpr bool kHeld = true;  // what a pass changes in v, the next one sees

  __device__ RegisterRows(const Operation& operation, int64_t rows, int64_t columns, int lanes)
      : operation_(operation),
        rows_(rows),
        columns_(static_cast<int>(columns)),
        lanes_(lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes),
        groups_(kRegisterThreads / lanes) {}

  __device__ int64_t rows_per_block() const { return static_cast<int64_t>(groups_) * kRows; }

  /// Loads the rows of the thread's group from those of the block, which begin at `first`. Rows
  /// beyond the last are skipped by has_row alone: all threads make all the steps.
  __device__ void load(int64_t first) {
    first_ = first + static_cast<int>(threadIdx.x) / lanes_;
    Pack<T, N> raw[kRows][kPacks][kInputs];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!has_row(r) || column_of(p) >= columns_) continue;
#pragma unroll
        for (int k = 0; k < kInputs; ++k) {
          const T* from = operation_.inputs[k] + row(r) * columns_ + column_of(p);
          raw[r][p][k] = *reinterpret_cast<const Pack<T, N>*>(from);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!has_row(r) || column_of(p) >= columns_) continue;
        operation_.values(raw[r][p], row(r), column_of(p), values_[r][p]);
      }
    }
  }

  __device__ bool has_row(int r) const { return row(r) < rows_; }
  __device__ int64_t row(int r) const { return first_ + static_cast<int64_t>(r) * groups_; }
  __device__ int64_t columns() const { return columns_; }
  /// Whether this thread stores what a row has once.
  __device__ bool is_first() const { return lane_ == 0; }

  /// work(r, column, v) for the thread's packs, with Number v[kInputs][N].
  template <class Work>
  __device__ void for_packs(const Work& work) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (has_row(r) && column_of(p) < columns_) work(r, column_of(p), values_[r][p]);
      }
    }
  }

  /// As for_packs, with the pack's dropout decisions in the low bits of `bits`.
  template <class Work>
  __device__ void for_packs_with_bits(const Work& work) {
    if constexpr (Operation::kDrops) {
      if (operation_.drops()) return for_drawn_packs(work);
    }
    for_packs([&](int r, int64_t column, auto& v) { work(r, column, v, ~0u); });
  }

  template <int K, class Combine>
  __device__ void reduce(Number (&values)[K], const Combine& combine) {
    reduce_lanes(values, lanes_, combine);
  }

 private:
  __device__ int column_of(int pack) const { return (pack * lanes_ + lane_) * N; }

  /// A lane draws one word of its row: there are no more words than lanes, because a thread has at
  /// most 32 columns.
  template <class Work>
  __device__ void for_drawn_packs(const Work& work) {
    static_assert(kElements <= 32);
    const int words = (columns_ + 31) / 32;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t drawn = 0;
      if (has_row(r) && lane_ < words) drawn = operation_.draw(row(r), lane_, words);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int column = column_of(p);
        const uint32_t bits = __shfl_sync(kFullWarp, drawn, column / 32, lanes_) >> (column % 32);
        if (has_row(r) && column < columns_) work(r, column, values_[r][p], bits);
      }
    }
  }

  const Operation& operation_;
  int64_t rows_;
  int64_t first_ = 0;
  int columns_;
  int lanes_;
  int lane_;
  int groups_;  // of lanes in a block
  Number values_[kRows][kPacks][kInputs][N];
};

/// What the threads of a block tell each other.
template <class Number>
struct BlockExchange {
  static constexpr int kMostQuantities = 2;
  Number parts[2][kMostQuantities][kMostBlockThreads / kWarpThreads];
  uint32_t drawn[kMostBlockThreads];
};

/// One row of a block, in shared memory or nowhere. A thread has the same columns in every pass:
/// what it keeps is its own and needs no barrier.
template <class Operation, int N, bool kCached>
class BlockRow {
 public:
  using T = typename Operation::Element;
  using Number = Compute<T>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = N;
  static constexpr int kRows = 1;
  static constexpr bool kHeld = false;

  __device__ BlockRow(const Operation& operation, int64_t columns, int64_t row, T* cache,
                      BlockExchange<Number>& exchange, int& turn)
      : operation_(operation),
        columns_(columns),
        row_(row),
        cache_(cache),
        exchange_(exchange),
        turn_(turn) {
    if constexpr (kCached) fill_cache();
  }

  __device__ bool has_row(int) const { return true; }
  __device__ int64_t row(int) const { return row_; }
  __device__ int64_t columns() const { return columns_; }
  __device__ bool is_first() const { return threadIdx.x == 0; }

  template <class Work>
  __device__ void for_packs(const Work& work) {
#pragma unroll 2
    for (int64_t column = first_column(); column < columns_; column += stride()) {
      Number v[kInputs][N];
      read(column, v);
      work(0, column, v);
    }
  }

  template <class Work>
  __device__ void for_packs_with_bits(const Work& work) {
    if constexpr (Operation::kDrops) {
      if (operation_.drops()) return for_drawn_packs(work);
    }
    for_packs([&](int r, int64_t column, auto& v) { work(r, column, v, ~0u); });
  }

  /// Over the block, the result in every thread. Two places take turns, so that one barrier is
  /// enough: whoever writes a place has passed the barrier behind its last readers.
  template <int K, class Combine>
  __device__ void reduce(Number (&values)[K], const Combine& combine) {
    static_assert(K <= BlockExchange<Number>::kMostQuantities);
    const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    auto& parts = exchange_.parts[turn_];
    turn_ ^= 1;
    reduce_lanes(values, kWarpThreads, combine);
    if (threadIdx.x % kWarpThreads == 0) {
#pragma unroll
      for (int k = 0; k < K; ++k) parts[k][warp] = values[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) {
      values[k] = parts[k][0];
      for (int other = 1; other < warps; ++other) values[k] = combine(values[k], parts[k][other]);
    }
  }

 private:
  __device__ int64_t first_column() const { return static_cast<int64_t>(threadIdx.x) * N; }
  __device__ int64_t stride() const { return static_cast<int64_t>(blockDim.x) * N; }

  /// Rows of inputs behind each other in the cache, each at a multiple of 16 bytes.
  __device__ int64_t cache_columns() const {
    constexpr int64_t kWord = kPack16<T>;
    return (columns_ + kWord - 1) / kWord * kWord;
  }
  __device__ const T* global(int input) const { return operation_.inputs[input] + row_ * columns_; }

  __device__ void fill_cache() {
    constexpr int kBytes = N * static_cast<int>(sizeof(T));
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      T* own = cache_ + k * cache_columns();
      const T* from = global(k);
#pragma unroll 4
      for (int64_t column = first_column(); column < columns_; column += stride()) {
        if constexpr (kBytes >= 4) {
          __pipeline_memcpy_async(own + column, from + column, kBytes);
        } else {
          own[column] = from[column];
        }
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }

  __device__ void read(int64_t column, Number (&v)[kInputs][N]) const {
    Pack<T, N> raw[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      const T* from = kCached ? cache_ + k * cache_columns() : global(k);
      raw[k] = *reinterpret_cast<const Pack<T, N>*>(from + column);
    }
    operation_.values(raw, row_, column, v);
  }

  /// A word per thread is drawn, then the columns of these words are worked on. 32 is a multiple of
  /// N, so that a thread's columns are those of the other passes.
  template <class Work>
  __device__ void for_drawn_packs(const Work& work) {
    const int64_t words = (columns_ + 31) / 32;
    for (int64_t first = 0; first < words; first += blockDim.x) {
      __syncthreads();  // the words before have been read
      if (first + threadIdx.x < words) {
        exchange_.drawn[threadIdx.x] = operation_.draw(row_, first + threadIdx.x, words);
      }
      __syncthreads();
      const int64_t begin = first * 32;
      const int64_t most = begin + static_cast<int64_t>(blockDim.x) * 32;
      const int64_t end = most < columns_ ? most : columns_;
      for (int64_t column = begin + first_column(); column < end; column += stride()) {
        const int within = static_cast<int>(column - begin);
        Number v[kInputs][N];
        read(column, v);
        work(0, column, v, exchange_.drawn[within / 32] >> (within % 32));
      }
    }
  }

  const Operation& operation_;
  int64_t columns_;
  int64_t row_;
  T* cache_;
  BlockExchange<Number>& exchange_;
  int& turn_;
};

template <class Operation, int N, int kElements, int kRows>
__global__ void __launch_bounds__(kRegisterThreads)
    register_rows_kernel(const __grid_constant__ Operation operation, int64_t rows, int64_t columns,
                         int lanes) {
  RegisterRows<Operation, N, kElements, kRows> part(operation, rows, columns, lanes);
  const int64_t step = part.rows_per_block() * gridDim.x;
  // The same number of turns for the whole block: the shuffles are of whole warps.
  for (int64_t first = part.rows_per_block() * blockIdx.x; first < rows; first += step) {
    part.load(first);
    operation.run(part);
  }
}

template <class Operation, int N, bool kCached>
__global__ void __launch_bounds__(kMostBlockThreads)
    block_row_kernel(const __grid_constant__ Operation operation, int64_t rows, int64_t columns) {
  using T = typename Operation::Element;
  extern __shared__ uint4 cache[];
  __shared__ BlockExchange<Compute<T>> exchange;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    BlockRow<Operation, N, kCached> part(operation, columns, row, reinterpret_cast<T*>(cache),
                                         exchange, turn);
    operation.run(part);
  }
}

/// Rows of at most 32 * kElements columns.
template <int N, int kElements, int kRows, class Operation>
void launch_register_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                          int64_t columns) {
  int lanes = 1;
  while (static_cast<int64_t>(lanes) * kElements < columns) lanes *= 2;
  const int64_t per_block = static_cast<int64_t>(kRegisterThreads / lanes) * kRows;
  const unsigned blocks =
      blocks_for(rows, per_block, static_cast<int64_t>(context.multiprocessors) * kRegisterBlocks);
  register_rows_kernel<Operation, N, kElements, kRows>
      <<<blocks, kRegisterThreads, 0, context.stream>>>(operation, rows, columns, lanes);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

template <int N, class Operation>
void launch_block_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                       int64_t columns) {
  constexpr int64_t kWord = 16;
  const int64_t row_bytes =
      columns * static_cast<int64_t>(sizeof(typename Operation::Element)) + kWord - 1;
  const int64_t cache_bytes = row_bytes / kWord * kWord * Operation::kInputs;
  const unsigned blocks = blocks_for(rows, 1, kMostRowBlocks);
  const unsigned threads =
      kWarpThreads * blocks_for(columns, int64_t{N} * kPacksPerThread * kWarpThreads,
                                kMostBlockThreads / kWarpThreads);
  if (cache_bytes <= kMostRowCacheBytes) {
    const auto kernel = &block_row_kernel<Operation, N, true>;
    allow_shared_bytes(kernel, cache_bytes);
    kernel<<<blocks, threads, static_cast<size_t>(cache_bytes), context.stream>>>(operation, rows,
                                                                                  columns);
  } else {
    block_row_kernel<Operation, N, false>
        <<<blocks, threads, 0, context.stream>>>(operation, rows, columns);
  }
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Of a thread: f64 has half the registers, and single elements cost an address each.
template <class T, int N>
inline constexpr int kMostElements = sizeof(T) == 8 || N == 1 ? kFewElements : kManyElements;

/// Rows in registers, where they fit.
template <int N, class Operation>
void launch_packs(const CudaContext& context, const Operation& operation, int64_t rows,
                  int64_t columns) {
  if (columns <= kFewElements * kWarpThreads) {
    return launch_register_rows<N, kFewElements, 2>(context, operation, rows, columns);
  }
  if constexpr (kMostElements<typename Operation::Element, N> == kManyElements) {
    if (columns <= kManyElements * kWarpThreads) {
      return launch_register_rows<N, kManyElements, 1>(context, operation, rows, columns);
    }
  }
  launch_block_rows<N>(context, operation, rows, columns);
}

/// Runs the operation on all rows, in packs as wide as the width and `address_bits` (of every
/// pointer that is read in packs, or-ed) allow.
template <class Operation>
void launch_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                 int64_t columns, uintptr_t address_bits) {
  using T = typename Operation::Element;
  if (rows == 0) return;
  constexpr int kWide = kPack16<T>;
  if (columns % kWide == 0 && address_bits % 16 == 0) {
    return launch_packs<kWide>(context, operation, rows, columns);
  }
  if constexpr (sizeof(T) == 2) {
    if (columns > kFewElements * kWarpThreads && columns % 2 == 0 && address_bits % 4 == 0) {
      return launch_block_rows<2>(context, operation, rows, columns);
    }
  }
  launch_packs<1>(context, operation, rows, columns);
}

inline uintptr_t address_bits(std::initializer_list<const View*> views) {
  uintptr_t bits = 0;
  for (const View* view : views) bits |= reinterpret_cast<uintptr_t>(view->data);
  return bits;
}

}  // namespace bertha
