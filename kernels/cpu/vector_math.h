#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bertha {

// Functions that the compiler vectorizes in a loop over f32 (no branches, no calls). std::exp and
// std::tanh would take most of a step.

/// e^x, with relative error below 2^-22 for x in [-87.33, 88.3] (measured against std::exp in f64
/// in vector_math_test.cpp). Below it is 0, above it e^88.3; NaN stays NaN.
/// Source    range reduction and polynomial of Moshier's Cephes library, expf.
inline float exp_f32(float x) {
  constexpr float kLow = -87.33f;
  constexpr float kHigh = 88.3f;
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;  // 9 bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

  const float above = x < kLow ? kLow : x;
  const float inside = above > kHigh ? kHigh : above;
  const float rounded = inside * kLog2E + kRounder;
  const float n = rounded - kRounder;
  const float r = (inside - n * kLn2High) - n * kLn2Low;

  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float fraction = (p * r * r + r) + 1.0f;
  // The integer sits in the low bits of `rounded`; shifting moves it to the exponent field.
  const int32_t integer = std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRounder);
  const float power = std::bit_cast<float>(static_cast<uint32_t>(integer + 127) << 23);
  return x < kLow ? 0.0f : fraction * power;
}

namespace gelu_detail {

constexpr float kRootTwoOverPi = 0.797884560802865355f;
constexpr float kCubic = 0.044715f;

/// Beyond +-10 the tanh is 1 to far below one f32 unit; clamping keeps powers finite.
inline float clamp(float z) {
  const float above = z < -10.0f ? -10.0f : z;
  return above > 10.0f ? 10.0f : above;
}

}  // namespace gelu_detail

/// 0.5 z (1 + tanh(u)) with u = sqrt(2/pi) (z + 0.044715 z^3), evaluated as z / (1 + e^(-2u)):
/// the same function without the cancellation of 1 + tanh(u) at negative z.
inline float gelu(float z) {
  const float c = gelu_detail::clamp(z);
  const float twice_u =
      2.0f * gelu_detail::kRootTwoOverPi * c * (1.0f + gelu_detail::kCubic * c * c);
  return z / (1.0f + exp_f32(-twice_u));
}

/// d gelu(z) / dz = s + z s (1 - s) 2 u', with s = 1 / (1 + e^(-2u)).
inline float gelu_derivative(float z) {
  const float c = gelu_detail::clamp(z);
  const float square = gelu_detail::kCubic * c * c;
  const float twice_root = 2.0f * gelu_detail::kRootTwoOverPi;
  const float e = exp_f32(-twice_root * c * (1.0f + square));
  const float s = 1.0f / (1.0f + e);
  return s + c * s * (e * s) * twice_root * (1.0f + 3.0f * square);
}

// The exact GELU, for models that were trained with it elsewhere: its erfc is a call per element,
// which the tanh form of vector_math.h avoids.

namespace gelu_erf_detail {
constexpr float kRootHalf = 0.707106781186547524f;
constexpr float kNormalPeak = 0.398942280401432678f;  // 1 / sqrt(2 pi)
}  // namespace gelu_erf_detail

/// 0.5 z (1 + erf(z / sqrt(2))), by erfc, which does not cancel at negative z.
inline float gelu_erf(float z) { return 0.5f * z * std::erfc(z * -gelu_erf_detail::kRootHalf); }

/// Phi(z) + z phi(z): distribution and density of the standard normal.
inline float gelu_erf_derivative(float z) {
  const float c = gelu_detail::clamp(z);
  return 0.5f * std::erfc(c * -gelu_erf_detail::kRootHalf) +
         c * gelu_erf_detail::kNormalPeak * exp_f32(-0.5f * c * c);
}

}  // namespace bertha
