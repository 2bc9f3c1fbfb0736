#pragma once

#include "kernels/cuda/common/types.cuh"

namespace bertha {

/// A range of elements cut for wide accesses: [begin, head) one by one, [head, tail) in vectors of
/// N, [tail, end) one by one. Indices are elements of arrays that are aligned at element 0.
struct FlatRange {
  int64_t begin;
  int64_t head;
  int64_t tail;
  int64_t end;

  __device__ __forceinline__ FlatRange(int64_t begin_in, int64_t end_in, int vec)
      : begin(begin_in), end(end_in) {
    const int64_t up = (begin + vec - 1) / vec * vec;
    head = up < end ? up : end;
    tail = head + (end - head) / vec * vec;
  }

  /// Elements outside the vectors: fewer than two vectors.
  __device__ __forceinline__ int rest() const {
    return static_cast<int>((head - begin) + (end - tail));
  }
  __device__ __forceinline__ int64_t rest_element(int i) const {
    const int64_t before = head - begin;
    return i < before ? begin + i : tail + (i - before);
  }
};

/// Elements before the first one at a multiple of 16 bytes; for a FlatRange over one array.
template <class T>
__device__ __forceinline__ int64_t elements_past_16_bytes(const T* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 16 / sizeof(T));
}

}  // namespace bertha
