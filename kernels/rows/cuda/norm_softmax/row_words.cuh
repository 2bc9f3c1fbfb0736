#pragma once

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/rows/cuda/norm_softmax/row_functors.cuh"

namespace bertha {

// Rows of 16 bits that begin anywhere, by the 16-byte words around them, so that kernels of whole
// vectors serve every width. The first and the last vector of a row may have columns that the row
// has not, before column 0 or from `columns` on: their elements are read with the word, count for
// nothing and are not written. Matrices that begin at the same place in a word share the columns of
// their vectors; rows a multiple of 8 apart do, too. Parameters are moved to these columns.

/// Elements between the 16-byte word that an address is in and the address.
template <class T>
__host__ __device__ __forceinline__ int lead_of(const T* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) % 16 / sizeof(T));
}

inline constexpr int kMostLead = kVecSize - 1;

/// Elements of a line of kCopyLineBytes, and of the shared memory for `cells` neighbours that begin
/// anywhere in a line: they have the same offset from a line as in global memory, because bulk
/// copies between different offsets are slow.
template <class T>
inline constexpr int kCopyLine = kCopyLineBytes / static_cast<int>(sizeof(T));
template <class T, class Count>
__host__ __device__ constexpr Count line_slot(Count cells) {
  return (cells + 2 * (kCopyLine<T> - 1)) / kCopyLine<T> * kCopyLine<T>;
}

/// Every so many rows begin at the same place in a word.
inline int64_t lead_period(int64_t columns) {
  return kVecSize / std::min<int64_t>(columns & -columns, kVecSize);
}

/// Whether a Load and a Store of 16 bits are matrices of elements as they are.
template <class Load, class Store>
constexpr bool have_words() {
  if constexpr (kIsPlainLoad<Load> && kHasMatrix<Store>) {
    return sizeof(typename Load::Element) == 2 && sizeof(typename Store::Element) == 2;
  }
  return false;
}
template <class Load, class Store>
inline constexpr bool kHasWords = have_words<Load, Store>();

/// Whether addresses differ by whole words of 16 bytes.
inline bool share_words(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

__device__ __forceinline__ bool has_column(int column, int columns) {
  return static_cast<unsigned>(column) < static_cast<unsigned>(columns);
}
/// Whether a row has all columns of a vector.
__device__ __forceinline__ bool has_all_columns(int column, int columns) {
  return column >= 0 && column + kVecSize <= columns;
}

/// The word of the matrix that begins at element `at`; elements outside of [0, elements) are
/// undefined and not read.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_word(const T* matrix, int64_t at,
                                                      int64_t elements) {
  if (at >= 0 && at + kVecSize <= elements) return load_vec_no_allocate(matrix + at);
  Vec<T, kVecSize> vec{};
  for (int i = 0; i < kVecSize; ++i) {
    if (at + i >= 0 && at + i < elements) vec.elem[i] = matrix[at + i];
  }
  return vec;
}

/// Replaces what is not the row's by `pair`, two equal elements.
template <class T>
__device__ __forceinline__ void keep_columns(Vec<T, kVecSize>& vec, int column, int columns,
                                             uint32_t pair) {
  if (has_all_columns(column, columns)) return;
  for (int i = 0; i < kVecSize / 2; ++i) {
    const bool has_low = has_column(column + 2 * i, columns);
    const bool has_high = has_column(column + 2 * i + 1, columns);
    vec.word[i] =
        __byte_perm(vec.word[i], pair, (has_low ? 0x10 : 0x54) + (has_high ? 0x3200 : 0x7600));
  }
}
/// The same of numbers.
__device__ __forceinline__ void keep_columns(float (&v)[kVecSize], int column, int columns,
                                             float other) {
  if (has_all_columns(column, columns)) return;
  for (int i = 0; i < kVecSize; ++i) {
    if (!has_column(column + i, columns)) v[i] = other;
  }
}

/// put_by, in words of the columns that the row has alone.
template <bool kInWords, class Store, class Write>
__device__ __forceinline__ void put_columns(const Store& store, const RowPlace& place, int columns,
                                            const float (&numbers)[kVecSize], const Write& write) {
  if constexpr (kInWords) {
    const int column = static_cast<int>(place.column);
    if (!has_all_columns(column, columns)) {
      const auto vec = to_vec<typename Store::Element>(numbers);
      for (int i = 0; i < kVecSize; ++i) {
        if (has_column(column + i, columns)) store.matrix[place.dense + i] = vec.elem[i];
      }
      return;
    }
  }
  put_by(write, store, place, numbers);
}
template <bool kInWords, class Store>
__device__ __forceinline__ void put_columns(const Store& store, const RowPlace& place, int columns,
                                            const float (&numbers)[kVecSize]) {
  put_columns<kInWords>(store, place, columns, numbers,
                        [](auto* to, const auto& vec) { store_vec(to, vec); });
}

/// Cells of whole words.
struct CellRange {
  int begin;
  int end;
};
/// Of the `cells` elements of a matrix from `at` on, those that can be copied in bulk: without the
/// first or the last word if it reaches out of the matrix. What these have of the matrix is copied
/// here, by one thread.
template <class T>
__device__ __forceinline__ CellRange copy_outer_words(T* to, const T* matrix, int64_t at, int cells,
                                                      int64_t elements) {
  const CellRange whole{at < 0 ? kVecSize : 0, at + cells > elements ? cells - kVecSize : cells};
#pragma unroll 1
  for (int i = 0; i < whole.begin; ++i) {
    if (at + i >= 0) to[i] = matrix[at + i];
  }
#pragma unroll 1
  for (int i = whole.end; i < cells; ++i) {
    if (at + i < elements) to[i] = matrix[at + i];
  }
  return whole;
}

/// Loads from an address that is aligned to T alone, by the two or three words around the vector.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_vec_anywhere(const T* from) {
  constexpr int kWords = Vec<T, kVecSize>::kWords;
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto* const words = reinterpret_cast<const uint4*>(address & ~uintptr_t{15});
  const unsigned skip = address % 16;
  Vec<uint32_t, kWords + 4> raw{};
  for (int i = 0; i <= kWords / 4; ++i) {
    if (i < kWords / 4 || skip != 0) set_words(raw, i, __ldg(words + i));
  }
  for (int i = 0; i < kWords + 2; ++i) {
    if ((skip & 8) != 0) raw.word[i] = raw.word[i + 2];
  }
  for (int i = 0; i < kWords + 1; ++i) {
    if ((skip & 4) != 0) raw.word[i] = raw.word[i + 1];
  }
  Vec<T, kVecSize> vec;
  for (int i = 0; i < kWords; ++i) {
    vec.word[i] = __funnelshift_r(raw.word[i], raw.word[i + 1], (skip & 2) * 8);
  }
  return vec;
}

/// gamma or beta at the columns of a vector; outside of the row, 0.
template <class T>
__device__ __forceinline__ Vec<T, kVecSize> load_columns(const T* from, int column, int columns) {
  // The words around a vector contain up to 7 elements more at either end.
  if (has_all_columns(column - kVecSize, columns) && has_all_columns(column + kVecSize, columns)) {
    return load_vec_anywhere(from + column);
  }
  Vec<T, kVecSize> vec{};
  for (int i = 0; i < kVecSize; ++i) {
    if (has_column(column + i, columns)) vec.elem[i] = from[column + i];
  }
  return vec;
}

/// gamma or beta at the columns of a vector, whole or of a row in words; without data `otherwise`.
template <bool kInWords, class T>
__device__ __forceinline__ Vec<T, kVecSize> load_part(const T* from, int column, int columns,
                                                      float otherwise) {
  if (from == nullptr) {
    float same[kVecSize];
    for (float& value : same) value = otherwise;
    return to_vec<T>(same);
  }
  if constexpr (kInWords) return load_columns(from, column, columns);
  return load_vec(from + column);
}

/// Rows of a kernel of whole vectors.
enum class RowForm : uint8_t { kAligned, kResidual, kInWords };

}  // namespace bertha
