#pragma once

#include <type_traits>

#include "kernels/cuda/common/types.cuh"

namespace bertha {

/// N neighbours of 16 bits as they lie in memory, in 32-bit registers.
template <class T, int N>
struct RawPack {
  static constexpr int kWords = N == 1 ? 1 : N / 2;
  uint32_t word[kWords];

  __device__ __forceinline__ void load(const T* from) {
    if constexpr (N == 8) {
      const uint4 words = *reinterpret_cast<const uint4*>(from);
      word[0] = words.x;
      word[1] = words.y;
      word[2] = words.z;
      word[3] = words.w;
    } else if constexpr (N == 4) {
      const uint2 words = *reinterpret_cast<const uint2*>(from);
      word[0] = words.x;
      word[1] = words.y;
    } else if constexpr (N == 2) {
      word[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      word[0] = *reinterpret_cast<const uint16_t*>(from);
    }
  }
  /// From an address of single elements.
  __device__ __forceinline__ void load_anywhere(const T* from) {
    T values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = from[i];
    float numbers[N];
#pragma unroll
    for (int i = 0; i < N; ++i) numbers[i] = to_float(values[i]);
    pack(numbers);
  }
  __device__ __forceinline__ void store(T* to) const {
    if constexpr (N == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    } else if constexpr (N == 4) {
      *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
    } else if constexpr (N == 2) {
      *reinterpret_cast<uint32_t*>(to) = word[0];
    } else {
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(word[0]);
    }
  }
  __device__ __forceinline__ void unpack(float (&to)[N]) const {
    if constexpr (N == 1) {
      const auto bits = static_cast<uint16_t>(word[0]);
      to[0] = to_float(*reinterpret_cast<const T*>(&bits));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = half_of(word[i / 2], i % 2);
    }
  }
  __device__ __forceinline__ void pack(const float (&from)[N]) {
    if constexpr (N == 1) {
      const T rounded = from_float<T>(from[0]);
      word[0] = *reinterpret_cast<const uint16_t*>(&rounded);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = pair_of(from[2 * i], from[2 * i + 1]);
    }
  }
  __device__ __forceinline__ void fill(uint32_t pair) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = pair;
  }
  /// The larger of each pair, with the pairs of `most` in a register; NaN loses.
  __device__ __forceinline__ uint32_t larger(uint32_t most) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) most = larger_pair(most, word[i]);
    return most;
  }
  /// Minus infinity twice, and the larger of a pair; of N == 1 the pair has one element.
  __device__ __forceinline__ static uint32_t least_pair() {
    return std::is_same_v<T, __nv_bfloat16> ? 0xff80ff80u : 0xfc00fc00u;
  }
  __device__ __forceinline__ static float larger_of_pair(uint32_t pair) {
    return N == 1 ? half_of(pair, 0) : fmaxf(half_of(pair, 0), half_of(pair, 1));
  }
  /// As keep_packed.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) asm volatile("" : "+r"(word[i]));
  }

 private:
  __device__ __forceinline__ static uint32_t larger_pair(uint32_t a, uint32_t b) {
    uint32_t larger;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      asm("max.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    } else {
      asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    }
    return larger;
  }
  __device__ __forceinline__ static float half_of(uint32_t bits, int high) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return __uint_as_float(high == 0 ? bits << 16 : bits & 0xffff0000u);
    } else {
      const __half2 pair = *reinterpret_cast<const __half2*>(&bits);
      return high == 0 ? __low2float(pair) : __high2float(pair);
    }
  }
  __device__ __forceinline__ static uint32_t pair_of(float low, float high) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(low, high);
      return *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
};

}  // namespace bertha
