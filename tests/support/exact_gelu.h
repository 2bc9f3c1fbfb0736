#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/ops/quantize.h"

namespace bertha {

/// The definition of a GELU in f64.
inline double exact_gelu(double z, Activation gelu) {
  if (gelu == Activation::kGelu) return 0.5 * z * std::erfc(-z / std::numbers::sqrt2);
  const double u = std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z);
  return 0.5 * z * (1.0 + std::tanh(u));
}

inline double exact_gelu_derivative(double at, Activation gelu) {
  const double z = std::clamp(at, -30.0, 30.0);  // beyond, it is 0 or 1, and the terms overflow
  if (gelu == Activation::kGelu) {
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi);
    return 0.5 * std::erfc(-z / std::numbers::sqrt2) + z * density;
  }
  const double t = std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z));
  const double slope = std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3 * 0.044715 * z * z);
  return 0.5 * (1.0 + t) + 0.5 * z * slope * (1.0 - t * t);
}

/// The derivative that a byte stands for, see Quantize.
inline double derivative_of(uint8_t byte) {
  return static_cast<double>(byte - kDerivativeZero) * static_cast<double>(kDerivativeStep);
}

}  // namespace bertha
