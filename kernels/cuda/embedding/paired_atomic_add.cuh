#pragma once

#include "kernels/base/cuda/types.cuh"

namespace bertha {

/// target[0 .. N) += values, atomically element by element. 16-bit elements go in pairs, which
/// halves the work of the memory system.
///
/// A pair must be in one aligned word of 4 bytes. If the run begins in the middle of a word (a row
/// of odd width, a table at an odd element), its first element is added alone, and so is the
/// remaining one at the end; the same applies if the count is odd. So no word with an element
/// outside the run is accessed, and the caller's row may have any width and begin anywhere.
///
/// Exact     each addition rounds to T; their order differs from run to run.
template <int N>
__device__ __forceinline__ void add_run_atomically(float* target, const float (&values)[N],
                                                   int count = N) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) atomicAdd(target + i, values[i]);
  }
}

namespace detail {

__device__ __forceinline__ void add_pair(__half* target, float low, float high) {
  atomicAdd(reinterpret_cast<__half2*>(target), __floats2half2_rn(low, high));
}
__device__ __forceinline__ void add_pair(__nv_bfloat16* target, float low, float high) {
  atomicAdd(reinterpret_cast<__nv_bfloat162*>(target), __floats2bfloat162_rn(low, high));
}

}  // namespace detail

template <int N, class T>
__device__ __forceinline__ void add_run_atomically(T* target, const float (&values)[N],
                                                   int count = N) {
  static_assert(sizeof(T) == 2);
  // Two loops, so that every index is known to the compiler and `values` stays in registers.
  if (reinterpret_cast<uintptr_t>(target) % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      if (i + 1 < N && i + 1 < count) {
        detail::add_pair(target + i, values[i], values[i + 1 < N ? i + 1 : i]);
      } else if (i < count) {
        atomicAdd(target + i, from_float<T>(values[i]));
      }
    }
  } else {
    if (count > 0) atomicAdd(target, from_float<T>(values[0]));
#pragma unroll
    for (int i = 1; i < N; i += 2) {
      if (i + 1 < N && i + 1 < count) {
        detail::add_pair(target + i, values[i], values[i + 1 < N ? i + 1 : i]);
      } else if (i < count) {
        atomicAdd(target + i, from_float<T>(values[i]));
      }
    }
  }
}

}  // namespace bertha
