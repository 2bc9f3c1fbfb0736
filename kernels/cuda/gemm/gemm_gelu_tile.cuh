#pragma once

// The GELU of gemm_bias_gelu.cu and gemm_dgelu_dbias.cu, with the tanh of the hardware: few warps take it
// of all that an SM's tensor cores make. Of 2^x and 1 / x, which are exact to some units,
// it would be two such instructions instead of one, and half as many again around them.

#include "kernels/cuda/tensor_core/mma.cuh"

namespace bertha::gemm_bias_gelu {

/// Relative error at most 2^-11 (PTX ISA).
__device__ __forceinline__ float tanh_approximate(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// With u = a z + b z^3 and t = tanh(u).
constexpr float kLinear = 0.797884560802865355f;  // a = sqrt(2 / pi)
constexpr float kCubic = kLinear * 0.044715f;     // b

/// 0.5 z (1 + t).
__device__ __forceinline__ float gelu(float z) {
  const float t = tanh_approximate(z * fmaf(kCubic, z * z, kLinear));
  const float half = 0.5f * z;
  return fmaf(half, t, half);
}

/// The derivative, 0.5 (1 + t) + 0.5 z (1 - t^2) u', where z u' = 3 u - 2 a z. |z| <= 10.
__device__ __forceinline__ float gelu_slope(float z) {
  constexpr float kRatio = kCubic / (kLinear * kLinear * kLinear);
  const float az = kLinear * z;
  const float u = az * fmaf(kRatio, az * az, 1.0f);
  const float t = tanh_approximate(u);
  return fmaf(fmaf(1.5f, u, -az), fmaf(-t, t, 1.0f), fmaf(0.5f, t, 0.5f));
}

/// Two neighbours out of one register, the opposite of packed().
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
  }
}

/// Two neighbours of a size of at most 10, where tanh is +-1. NaN stays NaN.
template <class T>
__device__ __forceinline__ uint32_t clamped(uint32_t pair) {
  uint32_t within;
  if constexpr (std::is_same_v<T, __half>) {
    asm("min.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(within) : "r"(pair), "r"(0x49004900));
  } else {
    asm("min.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(within) : "r"(pair), "r"(0x41204120));
  }
  return within;
}

/// gelu' of two neighbours, as f16.
template <class T>
__device__ __forceinline__ uint32_t gelu_slopes(uint32_t pair) {
  const float2 z = unpacked<T>(clamped<T>(pair));
  return packed<__half>(gelu_slope(z.x), gelu_slope(z.y));
}

/// 8 neighbours, 16 bytes.
struct Pairs {
  uint32_t of[4];
};

// By intrinsics: nvcc stored a plain uint4, whose words are used one by one, in four pieces.

/// To memory that is not used again soon.
__device__ __forceinline__ void stream_pairs(void* memory, const Pairs& pairs) {
  __stcs(static_cast<uint4*>(memory),
         make_uint4(pairs.of[0], pairs.of[1], pairs.of[2], pairs.of[3]));
}
__device__ __forceinline__ void write_pairs(void* memory, const Pairs& pairs) {
  __stwb(static_cast<uint4*>(memory),
         make_uint4(pairs.of[0], pairs.of[1], pairs.of[2], pairs.of[3]));
}

}  // namespace bertha::gemm_bias_gelu
