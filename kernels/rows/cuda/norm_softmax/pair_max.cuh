#pragma once

#include "kernels/base/cuda/vec.cuh"

namespace bertha {

// The largest of 16-bit elements, two to a register, without unpacking them. NaN loses.

/// Minus infinity twice.
template <class T>
__device__ __forceinline__ uint32_t minus_infinity_pair() {
  return std::is_same_v<T, __nv_bfloat16> ? 0xff80ff80u : 0xfc00fc00u;
}

/// The larger ones of the pairs of a Vec and of `most`; a single element is both of its pair.
template <class T, int N>
__device__ __forceinline__ uint32_t larger_pair(const Vec<T, N>& vec, uint32_t most) {
  for (int i = 0; i < Vec<T, N>::kWords; ++i) {
    const uint32_t pair = N == 1 ? vec.word[i] * 0x10001u : vec.word[i];
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(most), "r"(pair));
    } else {
      asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(most), "r"(pair));
    }
  }
  return most;
}

template <class T>
__device__ __forceinline__ float larger_of_pair(uint32_t pair) {
  Vec<T, 2> two;
  two.word[0] = pair;
  return fmaxf(element(two, 0), element(two, 1));
}

/// The largest element of some vectors.
template <class T, int N, int kVecs>
__device__ __forceinline__ float largest_of(const Vec<T, N> (&vecs)[kVecs]) {
  if constexpr (sizeof(T) == 2) {
    uint32_t most = minus_infinity_pair<T>();
#pragma unroll
    for (int p = 0; p < kVecs; ++p) most = larger_pair(vecs[p], most);
    return larger_of_pair<T>(most);
  } else {
    float most = -INFINITY;
#pragma unroll
    for (int p = 0; p < kVecs; ++p) {
      for (int i = 0; i < N; ++i) most = fmaxf(most, vecs[p].elem[i]);
    }
    return most;
  }
}

/// `word`, of two equal elements or an f32, in all words of a Vec.
template <class T, int N>
__device__ __forceinline__ void fill_words(Vec<T, N>& vec, uint32_t word) {
  for (int i = 0; i < Vec<T, N>::kWords; ++i) {
    vec.word[i] = static_cast<typename Vec<T, N>::Word>(word);
  }
}

}  // namespace bertha
