#pragma once

// GELU and its derivative for gemm_bias_gelu.cu and gemm_dgelu_dbias.cu, with the tanh instruction:
// few warps compute it for all results of an SM's tensor cores. From 2^x and 1 / x, which are more
// exact, it would take two such instructions and half as many others again.

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
__device__ __forceinline__ float gelu_derivative(float z) {
  constexpr float kRatio = kCubic / (kLinear * kLinear * kLinear);
  const float az = kLinear * z;
  const float u = az * fmaf(kRatio, az * az, 1.0f);
  const float t = tanh_approximate(u);
  return fmaf(fmaf(1.5f, u, -az), fmaf(-t, t, 1.0f), fmaf(0.5f, t, 0.5f));
}

/// The two elements of a register, the inverse of packed().
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
  }
}

/// Two elements clamped to [-10, 10], where tanh is +-1. NaN stays NaN.
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

/// gelu' of two elements, as f16.
template <class T>
__device__ __forceinline__ uint32_t gelu_derivative_pair(uint32_t pair) {
  const float2 z = unpacked<T>(clamped<T>(pair));
  return packed<__half>(gelu_derivative(z.x), gelu_derivative(z.y));
}

/// 8 elements, 16 bytes.
struct PackedPairs {
  uint32_t of[4];
};

// By intrinsics: nvcc split the store of a plain uint4, whose words are used one by one, in four.

/// Streaming: the data is not used again soon.
__device__ __forceinline__ void store_pairs_streaming(void* memory, const PackedPairs& pairs) {
  __stcs(static_cast<uint4*>(memory),
         make_uint4(pairs.of[0], pairs.of[1], pairs.of[2], pairs.of[3]));
}
__device__ __forceinline__ void store_pairs(void* memory, const PackedPairs& pairs) {
  __stwb(static_cast<uint4*>(memory),
         make_uint4(pairs.of[0], pairs.of[1], pairs.of[2], pairs.of[3]));
}

}  // namespace bertha::gemm_bias_gelu
