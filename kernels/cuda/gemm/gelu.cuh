#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace bertha {

// The tanh form in the shape of kernels/cpu/vector_math.h: with u = sqrt(2/pi)(z + 0.044715 z^3),
// 0.5 z (1 + tanh(u)) = z s(z), s = 1 / (1 + e^(-2u)), which does not cancel at negative z. Beyond
// +-10 s is 0 or 1 to far below one f32 unit; clamping keeps the powers finite.

namespace gelu_detail {
constexpr float kTwiceRoot = 2.0f * 0.797884560802865355f;
constexpr float kCubic = 0.044715f;
}  // namespace gelu_detail

namespace gelu_detail {
/// NaN stays NaN, which fminf and fmaxf would replace.
__device__ __forceinline__ float clamp(float z) {
  const float above = z < -10.0f ? -10.0f : z;
  return above > 10.0f ? 10.0f : above;
}
}  // namespace gelu_detail

__device__ __forceinline__ float gelu(float z) {
  const float c = gelu_detail::clamp(z);
  const float twice_u = gelu_detail::kTwiceRoot * c * (1.0f + gelu_detail::kCubic * c * c);
  return z / (1.0f + expf(-twice_u));
}

/// d gelu(z) / dz = s + z s (1 - s) 2 u'.
__device__ __forceinline__ float gelu_derivative(float z) {
  const float c = gelu_detail::clamp(z);
  const float square = gelu_detail::kCubic * c * c;
  const float e = expf(-gelu_detail::kTwiceRoot * c * (1.0f + square));
  const float s = 1.0f / (1.0f + e);
  return s + c * s * (e * s) * gelu_detail::kTwiceRoot * (1.0f + 3.0f * square);
}

/// The exact form, z Phi(z) with the distribution of the standard normal, and its derivative.
__device__ __forceinline__ float gelu_erf(float z) { return z * normcdff(z); }

__device__ __forceinline__ float gelu_erf_derivative(float z) {
  constexpr float kNormalPeak = 0.398942280401432678f;  // 1 / sqrt(2 pi)
  const float c = gelu_detail::clamp(z);
  return normcdff(c) + c * kNormalPeak * expf(-0.5f * c * c);
}

// The tanh form by the tanh instruction, for results of 16 bits where arithmetic counts: from 2^x
// and 1 / x, which are more exact, it takes two such instructions and half as many others again.
namespace gelu_instruction {

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

/// The derivative of two elements of type T, computed in f16: within 0.005 of the exact one.
template <class T>
__device__ __forceinline__ __half2 gelu_derivative_f16(uint32_t pair) {
  constexpr float kRatio = kCubic / (kLinear * kLinear * kLinear);
  const uint32_t within = clamped<T>(pair);
  __half2 az;
  if constexpr (std::is_same_v<T, __half>) {
    az = __hmul2(reinterpret_cast<const __half2&>(within), __float2half2_rn(kLinear));
  } else {
    az = __floats2half2_rn(kLinear * __uint_as_float(within << 16),
                           kLinear * __uint_as_float(within & 0xffff0000u));
  }
  const __half2 one = __float2half2_rn(1.0f);
  const __half2 half = __float2half2_rn(0.5f);
  const __half2 u = __hmul2(az, __hfma2(__float2half2_rn(kRatio), __hmul2(az, az), one));
  const __half2 t = h2tanh_approx(u);
  const __half2 half_z_du = __hfma2(__float2half2_rn(1.5f), u, __hneg2(az));
  return __hfma2(half_z_du, __hfma2(__hneg2(t), t, one), __hfma2(half, t, half));
}

}  // namespace gelu_instruction

}  // namespace bertha
