#pragma once

#include "kernels/ops/linear.h"

namespace bertha {

// Both GELUs as 0.5 z (1 + tanh(u)), for kernels whose tanh is one instruction. u = z p(z^2) with a
// polynomial p. This header compiles for the host too, where tests compare it with the definitions.

/// A polynomial in z^2.
struct GeluPolynomial {
  float constant;
  float first;
  float second;  // 0 in the tanh form, which then saves a multiplication

  template <class Real>
  constexpr Real at(Real square) const {
    const Real slope = second == 0.0f ? Real(first) : Real(second) * square + Real(first);
    return slope * square + Real(constant);
  }
};

/// u / z. For kGelu a minimax fit to z Phi(z): the value is within 3.5e-5 of it, for z > -2.89 also
/// within the 2^-9 of the result by which rounding to bf16 may change it; the derivative is within
/// 1.2e-4.
template <Activation kActivation>
constexpr GeluPolynomial gelu_argument() {
  if (kActivation == Activation::kGelu) {
    return {.constant = 0.79742587f, .first = 0.0370542122f, .second = -3.61404393e-4f};
  }
  constexpr float kRootTwoOverPi = 0.797884560802865355f;
  return {.constant = kRootTwoOverPi, .first = kRootTwoOverPi * 0.044715f, .second = 0.0f};
}

/// 0.5 du / dz.
template <Activation kActivation>
constexpr GeluPolynomial gelu_half_slope() {
  constexpr GeluPolynomial kOf = gelu_argument<kActivation>();
  return {.constant = 0.5f * kOf.constant, .first = 1.5f * kOf.first, .second = 2.5f * kOf.second};
}

/// Larger |z| are clamped to this before u is computed: here 1 - tanh(u) is below 4e-12, and from
/// 8.25 on the u of the fit would fall again.
inline constexpr float kGeluLimit = 8.0f;

}  // namespace bertha
