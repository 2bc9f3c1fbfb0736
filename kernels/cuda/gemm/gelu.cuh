#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gemm/gelu_form.h"
#include "kernels/ops/quantize.h"

namespace bertha {

// The tanh form in the shape of kernels/cpu/vector_math.h: with u = sqrt(2/pi)(z + 0.044715 z^3),
// 0.5 z (1 + tanh(u)) = z s(z), s = 1 / (1 + e^(-2u)), which does not cancel at negative z. Beyond
// +-10 s is 0 or 1 to far below one f32 unit; clamping keeps the powers finite.

namespace gelu_detail {
constexpr float kTwiceRoot = 2.0f * 0.797884560802865355f;
constexpr float kCubic = 0.044715f;

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

/// A derivative as Quantize stores it.
__device__ __forceinline__ uint8_t derivative_byte(float derivative) {
  return static_cast<uint8_t>(__float2int_rn(derivative / kDerivativeStep) + kDerivativeZero);
}

/// The density and the distribution of the standard normal, of which the exact form and its
/// derivative consist.
struct Normal {
  float density;
  float distribution;
};

/// Within 7.5e-8 and some roundings.
/// Source    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
__device__ __forceinline__ Normal normal(float z) {
  constexpr float kPeak = 0.398942280401432678f;  // 1 / sqrt(2 pi)
  const float t = __fdividef(1.0f, fmaf(0.2316419f, fabsf(z), 1.0f));
  float tail = fmaf(t, 1.330274429f, -1.821255978f);
  tail = fmaf(t, tail, 1.781477937f);
  tail = fmaf(t, tail, -0.356563782f);
  tail = fmaf(t, tail, 0.319381530f);
  const float density = kPeak * expf(-0.5f * z * z);
  tail *= t * density;
  return {.density = density, .distribution = z < 0.0f ? tail : 1.0f - tail};
}

/// The exact form, z Phi(z), and its derivative.
__device__ __forceinline__ float gelu_erf(float z) {
  return z * normal(gelu_detail::clamp(z)).distribution;
}

__device__ __forceinline__ float gelu_erf_derivative(float z) {
  const float c = gelu_detail::clamp(z);
  const Normal at = normal(c);
  return fmaf(c, at.density, at.distribution);
}

// Both forms by the tanh instruction (gelu_form.h), for results of 16 bits where arithmetic counts:
// from 2^x and 1 / x, which are more exact, it takes two such instructions and half as many others
// again.
namespace gelu_instruction {

/// Two f16 clamped to [-limit, limit], bits of a pair. NaN stays NaN.
__device__ __forceinline__ uint32_t clamped_f16(uint32_t pair, uint32_t limit) {
  uint32_t within;
  asm("min.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(within) : "r"(pair), "r"(limit));
  return within;
}

__device__ __forceinline__ __half2 polynomial(const GeluPolynomial& p, __half2 square) {
  const __half2 first = __float2half2_rn(p.first);
  const __half2 slope =
      p.second == 0.0f ? first : __hfma2(__float2half2_rn(p.second), square, first);
  return __hfma2(slope, square, __float2half2_rn(p.constant));
}

/// gelu of two elements in f16, and in bytes 0 and 2 of `derivative` their derivatives as Quantize
/// stores them, within tolerance::kGeluF16, kGeluDerivativeF16 and half a step.
struct GeluPair {
  __half2 value;
  uint32_t derivative;  // f16x2: 1024 and the byte, whose unit in the last place is 1
};

template <Activation kActivation>
__device__ __forceinline__ GeluPair gelu_with_derivative(__half2 z) {
  const auto constant = [](float value) { return __float2half2_rn(value); };
  // The tanh form does not need it: u and the product below grow to infinities of z's sign.
  uint32_t clamped_z = reinterpret_cast<const uint32_t&>(z);
  if constexpr (kActivation == Activation::kGelu) {
    static_assert(kGeluLimit == 8.0f);
    clamped_z = clamped_f16(clamped_z, 0x48004800);
  }
  const __half2 within = reinterpret_cast<const __half2&>(clamped_z);
  const __half2 square = __hmul2(within, within);
  const __half2 u = __hmul2(within, polynomial(gelu_argument<kActivation>(), square));
  const __half2 product = __hmul2(within, polynomial(gelu_half_slope<kActivation>(), square));
  // Above 3.5, for z above 3.4, 1 - t^2 is about the instruction's error.
  const uint32_t limited = clamped_f16(reinterpret_cast<const uint32_t&>(product), 0x43004300);
  const __half2 half_z_du = reinterpret_cast<const __half2&>(limited);
  const __half2 t = h2tanh_approx(u);
  const __half2 gate = __hfma2(constant(0.5f), t, constant(0.5f));
  const __half2 derivative = __hfma2(half_z_du, __hfma2(__hneg2(t), t, constant(1.0f)), gate);
  const __half2 byte =
      __hfma2(derivative, constant(1.0f / kDerivativeStep), constant(1024.0f + kDerivativeZero));
  // An infinity below, which f16 makes of numbers of bf16, times a gate of 0 would be NaN.
  const __half2 finite_below = __hmax2_nan(z, constant(-65504.0f));
  return {.value = __hmul2(finite_below, gate),
          .derivative = reinterpret_cast<const uint32_t&>(byte)};
}

/// gelu(values) in place, and the bytes of the derivative.
template <Activation kActivation>
__device__ __forceinline__ uint2 apply_gelu(uint32_t (&values)[4]) {
  uint32_t derivatives[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const GeluPair pair =
        gelu_with_derivative<kActivation>(reinterpret_cast<const __half2&>(values[i]));
    values[i] = reinterpret_cast<const uint32_t&>(pair.value);
    derivatives[i] = pair.derivative;
  }
  return make_uint2(__byte_perm(derivatives[0], derivatives[1], 0x6420),
                    __byte_perm(derivatives[2], derivatives[3], 0x6420));
}

/// Eight bytes as derivatives in steps, four f16x2.
__device__ __forceinline__ void derivative_steps(const uint2& bytes, uint32_t (&steps)[4]) {
  constexpr uint32_t k1024 = 0x64646464;  // the upper byte of 1024 to 1279 in f16
  const uint32_t pairs[] = {
      __byte_perm(bytes.x, k1024, 0x4140), __byte_perm(bytes.x, k1024, 0x4342),
      __byte_perm(bytes.y, k1024, 0x4140), __byte_perm(bytes.y, k1024, 0x4342)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 difference = __hsub2(reinterpret_cast<const __half2&>(pairs[i]),
                                       __float2half2_rn(1024.0f + kDerivativeZero));
    steps[i] = reinterpret_cast<const uint32_t&>(difference);
  }
}

/// Eight bytes as derivatives, four f16x2. Two products, because f16(kDerivativeStep) alone is
/// 2e-4 off.
__device__ __forceinline__ void derivative_pairs(const uint2& bytes, uint32_t (&pairs)[4]) {
  const __half2 step = __float2half2_rn(kDerivativeStep);
  const __half2 rest = __float2half2_rn(kDerivativeStep - __low2float(step));
  derivative_steps(bytes, pairs);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 steps = reinterpret_cast<const __half2&>(pairs[i]);
    const __half2 derivative = __hfma2(steps, step, __hmul2(steps, rest));
    pairs[i] = reinterpret_cast<const uint32_t&>(derivative);
  }
}

}  // namespace gelu_instruction

template <Activation kActivation>
using ActivationTag = std::integral_constant<Activation, kActivation>;

/// Calls work(ActivationTag<...>{}) for a GELU.
template <class Work>
void dispatch_gelu(Activation activation, const Work& work) {
  activation == Activation::kGelu ? work(ActivationTag<Activation::kGelu>{})
                                  : work(ActivationTag<Activation::kGeluTanh>{});
}

}  // namespace bertha
