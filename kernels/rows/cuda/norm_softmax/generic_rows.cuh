#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/compute.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/divide.h"
#include "kernels/rows/cuda/norm_softmax/row_functors.cuh"

namespace bertha {

// Operations on rows of any width, type and address: softmax and LayerNorm where no faster kernel
// fits. The width chooses where a row stays between its passes:
//   in registers      of a warp or a power of two of its lanes;
//   in shared memory  of a block, in its own type: neighbours in a warp read neighbouring words,
//                     free of bank conflicts;
//   nowhere           the block reads it again for each pass.
//
// Up to 256 columns a thread holds at most 8 elements; with room for 32 most rows take 8 to 68 %
// longer (kernels/rows/measured/rows.md).
//
// An operation is a value that the kernel gets as its argument:
//   OneInput or TwoInputs  its rows, the base class
//   store                  with row.store() only: where its results go
//   run(row)               its passes, in terms of for_vecs and reduce below; of for_drawn_vecs if
//                          its store draws dropout (kDraws)

inline constexpr int kFewElements = 8;  // of a thread, in registers
inline constexpr int kManyElements = 32;
inline constexpr int kRegisterThreads = 128;
inline constexpr int kMostBlockThreads = 512;
// Vectors of a thread, before a block gets more threads: each row costs every thread the same.
inline constexpr int kVecsPerThread = 8;
inline constexpr int64_t kRowExchangeBytes = 7 * 1024;

/// Shared memory for the rows of a block: 220 of 227 KiB on sm_90.
inline int64_t most_row_cache_bytes(const CudaContext& context) {
  return context.device.shared_bytes() - kRowExchangeBytes;
}

/// Whether Row is one of the rows below, which name a vector by its first column.
template <class Row>
inline constexpr bool kIsGenericRow = requires {
  typename Row::Number;
};

/// A row in the registers of `lanes` threads, kElements columns each, in vectors of N.
template <class Operation, int N, int kElements>
class RegisterRow {
 public:
  using T = typename Operation::Element;
  using Number = Compute<T>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kVecElements = N;
  static constexpr int kVecs = kElements / N;
  static constexpr bool kInRegisters = true;  // what a pass changes in v, the next one sees

  /// Beyond the last row there is nothing to do; the shuffles are of whole warps.
  __device__ RegisterRow(const Operation& operation, int64_t rows, int64_t columns, int lanes)
      : operation_(operation),
        row_(static_cast<int64_t>(blockIdx.x) * (kRegisterThreads / lanes) +
             static_cast<int>(threadIdx.x) / lanes),
        columns_(static_cast<int>(columns)),
        end_(row_ < rows ? columns_ : 0),
        lanes_(lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes) {
    Vec<T, N> raw[kVecs][kInputs];
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      if (column_of(p) >= end_) continue;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        raw[p][k] = operation.template fetch_input<N>(k, place_of(column_of(p)));
      }
    }
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      if (column_of(p) < end_) operation.values(place_of(column_of(p)), raw[p], values_[p]);
    }
  }

  __device__ int64_t row() const { return row_; }
  __device__ int64_t columns() const { return columns_; }
  __device__ RowPlace place_of(int64_t column) const {
    return {row_, column, row_ * columns_ + column};
  }
  __device__ bool exists() const { return end_ > 0; }
  /// Whether this thread stores what a row has once.
  __device__ bool is_first() const { return exists() && lane_ == 0; }

  /// work(column, v) for the thread's vectors, with Number v[kInputs][N].
  __device__ void for_vecs(const auto& work) {
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      if (column_of(p) < end_) work(column_of(p), values_[p]);
    }
  }

  template <int K, class Combine>
  __device__ void reduce(Number (&values)[K], const Combine& combine) {
    reduce_lanes(values, lanes_, combine);
  }

  __device__ void keep_packed() const {}
  __device__ void store(int64_t column, const Number (&numbers)[N]) const {
    put(operation_.store, place_of(column), numbers);
  }

  /// A lane draws one word of its row, which has at most as many words as lanes, because a thread
  /// has at most 32 columns.
  __device__ void for_drawn_vecs(const auto& work) {
    static_assert(kElements <= 32);
    const int words = (columns_ + 31) / 32;
    uint32_t drawn = 0;
    if (exists() && lane_ < words) drawn = operation_.store.draw(row_, lane_, words);
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      const int column = column_of(p);
      const uint32_t bits = __shfl_sync(kFullWarp, drawn, column / 32, lanes_) >> (column % 32);
      if (column < end_) work(column, values_[p], bits);
    }
  }

 private:
  __device__ int column_of(int vec) const { return (vec * lanes_ + lane_) * N; }

  const Operation& operation_;
  int64_t row_;
  int columns_;
  int end_;  // of the columns; 0 without a row
  int lanes_;
  int lane_;
  Number values_[kVecs][kInputs][N];
};

/// One row of a block, in shared memory or nowhere. A thread has the same columns in every pass:
/// what it keeps is its own and needs no barrier.
template <class Operation, int N, bool kCached>
class SharedRow {
 public:
  using T = typename Operation::Element;
  using Number = Compute<T>;
  static constexpr int kInputs = Operation::kInputs;
  static constexpr int kVecElements = N;
  static constexpr bool kInRegisters = false;
  struct Shared {
    WarpExchange<Number, 2, kMostBlockThreads / kWarpThreads> exchange;
    uint32_t drawn[kMostBlockThreads];
  };

  __device__ SharedRow(const Operation& operation, int64_t columns, int64_t row, T* cache,
                       Shared& shared)
      : operation_(operation), columns_(columns), row_(row), cache_(cache), shared_(shared) {
    if constexpr (kCached) fill_cache();
  }

  __device__ int64_t row() const { return row_; }
  __device__ int64_t columns() const { return columns_; }
  __device__ RowPlace place_of(int64_t column) const {
    return {row_, column, row_ * columns_ + column};
  }
  __device__ bool is_first() const { return threadIdx.x == 0; }

  __device__ void for_vecs(const auto& work) {
#pragma unroll 2
    for (int64_t column = first_column(); column < columns_; column += stride()) {
      Number v[kInputs][N];
      read(column, v);
      work(column, v);
    }
  }

  template <int K, class Combine>
  __device__ void reduce(Number (&values)[K], const Combine& combine) {
    block_reduce(values, combine, shared_.exchange, turn_);
    ++turn_;
  }

  __device__ void keep_packed() const {}
  __device__ void store(int64_t column, const Number (&numbers)[N]) const {
    put(operation_.store, place_of(column), numbers);
  }

  /// A word per thread is drawn, then the columns of these words are worked on. 32 is a multiple of
  /// N, so that a thread's columns are the same as in the other passes.
  __device__ void for_drawn_vecs(const auto& work) {
    const int64_t words = (columns_ + 31) / 32;
    for (int64_t first = 0; first < words; first += blockDim.x) {
      __syncthreads();  // the words before have been read
      if (first + threadIdx.x < words) {
        shared_.drawn[threadIdx.x] = operation_.store.draw(row_, first + threadIdx.x, words);
      }
      __syncthreads();
      const int64_t begin = first * 32;
      const int64_t most = begin + static_cast<int64_t>(blockDim.x) * 32;
      const int64_t end = most < columns_ ? most : columns_;
      for (int64_t column = begin + first_column(); column < end; column += stride()) {
        const int within = static_cast<int>(column - begin);
        Number v[kInputs][N];
        read(column, v);
        work(column, v, shared_.drawn[within / 32] >> (within % 32));
      }
    }
  }

 private:
  __device__ int64_t first_column() const { return static_cast<int64_t>(threadIdx.x) * N; }
  __device__ int64_t stride() const { return static_cast<int64_t>(blockDim.x) * N; }
  __device__ T* cached(int input) const { return cache_ + input * round_up(columns_, kVec16<T>); }

  __device__ void fill_cache() {
    constexpr int kBytes = Vec<T, N>::kBytes;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      T* own = cached(k);
#pragma unroll 4
      for (int64_t column = first_column(); column < columns_; column += stride()) {
        if constexpr (kBytes >= 4 && Operation::kHasMatrices) {
          __pipeline_memcpy_async(own + column, operation_.matrix(k) + row_ * columns_ + column,
                                  kBytes);
        } else {
          store_vec(own + column, operation_.template fetch_input<N>(k, place_of(column)));
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
      if constexpr (kCached) {
        raw[k] = load_vec<N>(cached(k) + column);
      } else {
        raw[k] = operation_.template fetch_input<N>(k, place_of(column));
      }
    }
    operation_.values(place_of(column), raw, v);
  }

  const Operation& operation_;
  int64_t columns_;
  int64_t row_;
  T* cache_;
  Shared& shared_;
  int turn_ = 0;
};

template <class Operation, int N, int kElements>
__global__ void __launch_bounds__(kRegisterThreads)
    register_row_kernel(const __grid_constant__ Operation operation, int64_t rows, int64_t columns,
                        int lanes) {
  RegisterRow<Operation, N, kElements> row(operation, rows, columns, lanes);
  operation.run(row);
}

template <class Operation, int N, bool kCached>
__global__ void __launch_bounds__(kMostBlockThreads)
    shared_row_kernel(const __grid_constant__ Operation operation, int64_t columns) {
  using Row = SharedRow<Operation, N, kCached>;
  extern __shared__ uint4 cache[];
  __shared__ typename Row::Shared shared;
  Row row(operation, columns, blockIdx.x, reinterpret_cast<typename Row::T*>(cache), shared);
  operation.run(row);
}

/// Kept by a context: Error(kEnvironment) where the kernels of an operation, of functors say, were
/// compiled for other GPUs than the library, by whose code context.kernels was chosen.
template <class Operation>
struct CompiledAlike {
  explicit CompiledAlike(const CudaContext& context) {
    cudaFuncAttributes code{};
    const cudaError_t status = cudaFuncGetAttributes(&code, shared_row_kernel<Operation, 1, true>);
    const bool is_sm90a = code.ptxVersion == 90;
    if (status == cudaSuccess && is_sm90a == context.device.has_sm90a_code()) return;
    cudaGetLastError();  // clears the error, which the next check would report
    fail(ExitCode::kEnvironment, "functors have ",
         status != cudaSuccess ? "no code" : (is_sm90a ? "code of sm_90a" : "portable code"),
         " for ", context.device.description(),
         ", want what the library has; compile them with its CMAKE_CUDA_ARCHITECTURES, as "
         "kernels/rows/functors.md describes");
  }
};

/// Rows of at most 32 * kElements columns.
template <int N, int kElements, class Operation>
void launch_register_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                          int64_t columns) {
  int lanes = 1;
  while (static_cast<int64_t>(lanes) * kElements < columns) lanes *= 2;
  launch_kernel(context.stream, register_row_kernel<Operation, N, kElements>,
                {blocks_for(rows, kRegisterThreads / lanes), kRegisterThreads}, operation, rows,
                columns, lanes);
}

template <int N, class Operation>
void launch_shared_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                        int64_t columns) {
  using T = typename Operation::Element;
  const int64_t bytes = round_up(columns, kVec16<T>) * Operation::kInputs * int64_t{sizeof(T)};
  const unsigned threads =
      kWarpThreads * blocks_for(columns, int64_t{N} * kVecsPerThread * kWarpThreads,
                                kMostBlockThreads / kWarpThreads);
  const bool is_cached = bytes <= most_row_cache_bytes(context);
  const auto kernel =
      is_cached ? &shared_row_kernel<Operation, N, true> : &shared_row_kernel<Operation, N, false>;
  launch_kernel(context.stream, kernel, {rows, threads, is_cached ? bytes : 0}, operation, columns);
}

/// work(std::integral_constant<int, N>) with the widest vectors that `most` elements at once allow
/// (row_vec_elements): 16 bytes, two elements of 16 bits, or one.
template <class T, class Work>
void with_vec_size(int most, const Work& work) {
  constexpr int kWide = kVec16<T>;
  if (most >= kWide) return work(std::integral_constant<int, kWide>{});
  if constexpr (sizeof(T) == 2) {
    if (most >= 2) return work(std::integral_constant<int, 2>{});
  }
  work(std::integral_constant<int, 1>{});
}

/// Runs the operation on all rows, in vectors as wide as with_vec_size chooses them.
template <class Operation>
void launch_rows(const CudaContext& context, const Operation& operation, int64_t rows,
                 int64_t columns, int most_elements) {
  using T = typename Operation::Element;
  if (rows == 0) return;
  with_vec_size<T>(most_elements, [&](auto vec_size) {
    constexpr int N = decltype(vec_size)::value;
    // Only wider rows of 16 bits in whole vectors come here: others have faster kernels.
    constexpr bool kHasRegisterRows = sizeof(T) > 2 || N < kVecSize;
    if constexpr (kHasRegisterRows) {
      if (columns <= kFewElements * kWarpThreads) {
        return launch_register_rows<N, kFewElements>(context, operation, rows, columns);
      }
    }
    // Where registers hold them: f64 takes two, and single elements an address each.
    if constexpr (kHasRegisterRows && sizeof(T) < 8 && (N > 1 || Operation::kInputs == 1)) {
      if (columns <= kManyElements * kWarpThreads) {
        return launch_register_rows<N, kManyElements>(context, operation, rows, columns);
      }
    }
    launch_shared_rows<N>(context, operation, rows, columns);
  });
}

}  // namespace bertha
