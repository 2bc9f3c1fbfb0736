#pragma once

#include "kernels/cuda/common/vec.cuh"

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
#pragma unroll
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

/// `word`, of two equal elements, in all words of a Vec.
template <class T, int N>
__device__ __forceinline__ void fill_words(Vec<T, N>& vec, uint32_t word) {
#pragma unroll
  for (int i = 0; i < Vec<T, N>::kWords; ++i) {
    vec.word[i] = static_cast<typename Vec<T, N>::Word>(word);
  }
}

}  // namespace bertha
