#include "kernels/cuda/gemm/gelu_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/fp8.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/support/exact_gelu.h"

namespace bertha {
namespace {

/// Every finite number of 16 bits and of e4m3.
std::vector<double> all_inputs() {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    values.push_back(to_float(Half{pattern}));
    values.push_back(to_float(BFloat16{pattern}));
    values.push_back(to_float(Fp8E4M3{static_cast<uint8_t>(bits)}));
  }
  std::erase_if(values, [](float value) { return !std::isfinite(value); });
  return {values.begin(), values.end()};
}

/// The kernels' formulas in f64.
template <Activation kActivation>
double value_by_tanh(double z) {
  const double square = std::min(z * z, static_cast<double>(kGeluLimit * kGeluLimit));
  return 0.5 * z * (1.0 + std::tanh(z * gelu_argument<kActivation>().at(square)));
}

template <Activation kActivation>
double derivative_by_tanh(double z) {
  const auto limit = static_cast<double>(kGeluLimit);
  const double c = std::clamp(z, -limit, limit);
  const double t = std::tanh(c * gelu_argument<kActivation>().at(c * c));
  return 0.5 * (1.0 + t) + c * gelu_half_slope<kActivation>().at(c * c) * (1.0 - t * t);
}

TEST(GeluForm, TheFitIsWithinItsBoundsOfTheExactFormForEveryInput) {
  constexpr Activation kExact = Activation::kGelu;
  double worst = 0.0, worst_derivative = 0.0;
  for (const double z : all_inputs()) {
    const double want = exact_gelu(z, kExact);
    const double error = std::abs(value_by_tanh<kExact>(z) - want);
    worst = std::max(worst, error);
    worst_derivative = std::max(worst_derivative, std::abs(derivative_by_tanh<kExact>(z) -
                                                           exact_gelu_derivative(z, kExact)));
    if (z > -2.88) {
      EXPECT_LE(error, std::abs(want) / 512) << z;  // what rounding to bf16 may change
    }
  }
  EXPECT_LE(worst, tolerance::kGeluFit);
  EXPECT_LE(worst_derivative, tolerance::kGeluFitDerivative);
}

TEST(GeluForm, TheTanhFormIsItsDefinition) {
  constexpr Activation kTanhForm = Activation::kGeluTanh;
  for (const double z : all_inputs()) {
    const double bound = 4 * tolerance::kRoundF32 * std::max(1.0, std::abs(z));
    EXPECT_NEAR(value_by_tanh<kTanhForm>(z), exact_gelu(z, kTanhForm), bound);
    EXPECT_NEAR(derivative_by_tanh<kTanhForm>(z), exact_gelu_derivative(z, kTanhForm), bound);
  }
}

TEST(GeluForm, UpToTheLimitTheArgumentRises) {
  for (double z = 0.0; z <= static_cast<double>(kGeluLimit); z += 0.001) {
    EXPECT_GT(gelu_half_slope<Activation::kGelu>().at(z * z), 0.0) << z;
  }
  const double limit = static_cast<double>(kGeluLimit);
  EXPECT_LT(1.0 - std::tanh(limit * gelu_argument<Activation::kGelu>().at(limit * limit)), 4e-12);
}

}  // namespace
}  // namespace bertha
