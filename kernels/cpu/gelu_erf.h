#pragma once

#include <cmath>

#include "kernels/cpu/vector_math.h"

namespace bertha {

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
