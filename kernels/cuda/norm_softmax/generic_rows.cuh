#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/common/compute.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/row_packs.cuh"

namespace bertha {

// The skeleton of operations on rows of any width: softmax and LayerNorm of what no other file of the
// room takes. The width chooses where a row stays between its passes:
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
//   kShifts                whether values() looks at raw alone, so that packs may begin before the
//                          row: where rows begin between the 16-byte words of memory
//   run(row_or_rows)       its passes, in terms of for_packs and reduce below
//
// Deterministic: every order of summation follows from the width alone.

// Boundaries between the three, and sizes of blocks; measured with softmax on an H200 where a
// figure stands (f16, 49,152 rows).
inline constexpr int kFewElements = 8;  // of a thread, for two rows at a time
// Of a thread, for one row: all the columns of one warp. 1,024 columns in registers 53.7 us
// forward, in shared memory 62.3; 2,048 columns 125 (of 64 elements), in shared memory 116.
inline constexpr int kManyElements = 32;
inline constexpr int kRegisterThreads = 128;
inline constexpr int kRegisterBlocks = 64;  // of an SM, in a few waves
inline constexpr int kMostBlockThreads = 512;
// Of a block, before it gets more threads: each row costs every thread the same, and fewer of them
// wait for each other. 2,048 columns with 2, 4, 8, 16 packs: 126, 121, 116, 116 us.
inline constexpr int kPacksPerThread = 8;
inline constexpr int64_t kMostRowCacheBytes = 220 * 1024;  // of 227 KiB; the rest is for exchange
inline constexpr int64_t kMostRowBlocks = int64_t{1} << 30;

/// rows.for_packs, with the pack's dropout decisions in the low bits of `bits`:
/// work(r, column, v, lanes, bits).
template <class Operation, class Rows, class Work>
__device__ __forceinline__ void for_packs_with_bits(const Operation& operation, Rows& rows,
                                                    const Work& work) {
  if constexpr (Operation::kDrops) {
    if (operation.drops()) return rows.for_drawn_packs(work);
  }
  rows.for_packs(
      [&](int r, int64_t column, auto& v, auto lanes) { work(r, column, v, lanes, ~0u); });
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
    Vec<T, N> raw[kRows][kPacks][kInputs];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (!has_row(r) || column_of(p) >= columns_) continue;
#pragma unroll
        for (int k = 0; k < kInputs; ++k) {
          const T* from = operation_.inputs[k] + row(r) * columns_ + column_of(p);
          raw[r][p][k] = *reinterpret_cast<const Vec<T, N>*>(from);
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

  /// work(r, column, v, lanes) for the thread's packs, with Number v[kInputs][N].
  template <class Work>
  __device__ void for_packs(const Work& work) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (has_row(r) && column_of(p) < columns_) {
          work(r, column_of(p), values_[r][p], WholePack{});
        }
      }
    }
  }

  template <int K, class Combine>
  __device__ void reduce(Number (&values)[K], const Combine& combine) {
    reduce_lanes(values, lanes_, combine);
  }

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
        if (has_row(r) && column < columns_) work(r, column, values_[r][p], WholePack{}, bits);
      }
    }
  }

 private:
  __device__ int column_of(int pack) const { return (pack * lanes_ + lane_) * N; }

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

/// Elements of a row of one input in the cache: whole words of 16 bytes.
template <class T, bool kShifted>
__host__ __device__ constexpr int64_t row_cache_columns(int64_t columns) {
  constexpr int64_t kWord = kVec16<T>;
  return (columns + kWord - 1) / kWord * kWord + (kShifted ? kWord : 0);
}

/// One row of a block, in shared memory or nowhere. A thread has the same columns in every pass:
/// what it keeps is its own and needs no barrier.
///
/// kShifted: packs lie at 16-byte words of memory, the first and last of a row reach beyond it.
template <class Operation, int N, bool kCached, bool kShifted>
class BlockRow {
 public:
  using T = typename Operation::Element;
  using Number = Compute<T>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kPackElements = N;
  static constexpr int kRows = 1;
  static constexpr bool kHeld = false;

  __device__ BlockRow(const Operation& operation, int64_t rows, int64_t columns, int64_t row,
                      T* cache, BlockExchange<Number>& exchange, int& turn)
      : operation_(operation),
        columns_(columns),
        row_(row),
        left_((rows - row) * columns),
        shift_(kShifted ? static_cast<int>(row * columns % N) : 0),
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
      if constexpr (kShifted) {
        if (column < 0 || column + N > columns_) {
          const int64_t left = columns_ - column;
          work(0, column, v,
               PartPack{column < 0 ? shift_ : 0, left < N ? static_cast<int>(left) : N});
          continue;
        }
      }
      work(0, column, v, WholePack{});
    }
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

  /// A word per thread is drawn, then the columns of these words are worked on. 32 is a multiple of
  /// N, so that a thread's columns are those of the other passes.
  template <class Work>
  __device__ void for_drawn_packs(const Work& work) {
    static_assert(!kShifted, "words of decisions begin with the row");
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
        work(0, column, v, WholePack{}, exchange_.drawn[within / 32] >> (within % 32));
      }
    }
  }

 private:
  __device__ int64_t first_column() const { return static_cast<int64_t>(threadIdx.x) * N - shift_; }
  __device__ int64_t stride() const { return static_cast<int64_t>(blockDim.x) * N; }

  __device__ const T* global(int input) const { return operation_.inputs[input] + row_ * columns_; }

  __device__ T* cached(int input) const {
    return cache_ + input * row_cache_columns<T, kShifted>(columns_) + shift_;
  }

  __device__ void fill_cache() {
    constexpr int kBytes = N * static_cast<int>(sizeof(T));
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      T* own = cached(k);
      const T* from = global(k);
#pragma unroll 4
      for (int64_t column = first_column(); column < columns_; column += stride()) {
        if constexpr (kBytes >= 4) {
          if (!kShifted || column + N <= left_) {
            __pipeline_memcpy_async(own + column, from + column, kBytes);
          } else {  // the matrix ends within the pack
            for (int64_t last = column; last < left_; ++last) own[last] = from[last];
          }
        } else {
          own[column] = from[column];
        }
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }

  __device__ void read(int64_t column, Number (&v)[kInputs][N]) const {
    Vec<T, N> raw[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      const T* from = kCached ? cached(k) : global(k);
      if (kCached || !kShifted || column + N <= left_) {
        raw[k] = *reinterpret_cast<const Vec<T, N>*>(from + column);
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (column + i < left_) raw[k].elem[i] = from[column + i];
        }
      }
    }
    operation_.values(raw, row_, column, v);
  }

  const Operation& operation_;
  int64_t columns_;
  int64_t row_;
  int64_t left_;  // elements of the matrix from the row on
  int shift_;     // of the first pack before the row, in elements
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

template <class Operation, int N, bool kCached, bool kShifted>
__global__ void __launch_bounds__(kMostBlockThreads)
    block_row_kernel(const __grid_constant__ Operation operation, int64_t rows, int64_t columns) {
  using T = typename Operation::Element;
  extern __shared__ uint4 cache[];
  __shared__ BlockExchange<Compute<T>> exchange;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    BlockRow<Operation, N, kCached, kShifted> part(operation, rows, columns, row,
                                                   reinterpret_cast<T*>(cache), exchange, turn);
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
      blocks_for(rows, per_block, static_cast<int64_t>(context.sm_count) * kRegisterBlocks);
  register_rows_kernel<Operation, N, kElements, kRows>
      <<<blocks, kRegisterThreads, 0, context.stream>>>(operation, rows, columns, lanes);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

template <int N, bool kShifted = false, class Operation>
void launch_block_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                       int64_t columns) {
  using T = typename Operation::Element;
  const int64_t cache_bytes = row_cache_columns<T, kShifted>(columns) * Operation::kInputs *
                              static_cast<int64_t>(sizeof(T));
  const unsigned blocks = blocks_for(rows, 1, kMostRowBlocks);
  const unsigned threads =
      kWarpThreads * blocks_for(columns, int64_t{N} * kPacksPerThread * kWarpThreads,
                                kMostBlockThreads / kWarpThreads);
  if (cache_bytes <= kMostRowCacheBytes) {
    const auto kernel = &block_row_kernel<Operation, N, true, kShifted>;
    allow_shared_bytes(kernel, cache_bytes);
    kernel<<<blocks, threads, static_cast<size_t>(cache_bytes), context.stream>>>(operation, rows,
                                                                                  columns);
  } else {
    block_row_kernel<Operation, N, false, kShifted>
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

/// work(std::integral_constant<int, N>) with the widest packs that the width and `address_bits` (of
/// every pointer that is read in packs, or-ed) allow: 16 bytes, two elements of 16 bits, or one.
template <class T, class Work>
void with_pack(int64_t columns, uintptr_t address_bits, const Work& work) {
  constexpr int kWide = kVec16<T>;
  if (columns % kWide == 0 && address_bits % 16 == 0) {
    return work(std::integral_constant<int, kWide>{});
  }
  if constexpr (sizeof(T) == 2) {
    if (columns % 2 == 0 && address_bits % 4 == 0) return work(std::integral_constant<int, 2>{});
  }
  work(std::integral_constant<int, 1>{});
}

/// Runs the operation on all rows, in packs as wide as the width and `address_bits` (of every
/// pointer that is read in packs, or-ed) allow. Rows that begin between 16-byte words are shifted,
/// where the operation can be, but for narrow ones, and wide ones that go in words of 4 bytes.
template <class Operation>
void launch_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                 int64_t columns, uintptr_t address_bits) {
  using T = typename Operation::Element;
  if (rows == 0) return;
  if constexpr (Operation::kShifts) {
    constexpr int kWide = kVec16<T>;
    const bool has_words = sizeof(T) == 2 && columns % 2 == 0;
    if (columns % kWide != 0 && address_bits % 16 == 0 && columns > kFewElements * kWarpThreads &&
        (columns <= kManyElements * kWarpThreads || !has_words)) {
      return launch_block_rows<kWide, true>(context, operation, rows, columns);
    }
  }
  with_pack<T>(columns, address_bits, [&](auto pack) {
    launch_packs<decltype(pack)::value>(context, operation, rows, columns);
  });
}

inline uintptr_t address_bits(std::initializer_list<const View*> views) {
  uintptr_t bits = 0;
  for (const View* view : views) bits |= reinterpret_cast<uintptr_t>(view->data);
  return bits;
}

}  // namespace bertha
