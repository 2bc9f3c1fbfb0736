#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/base/tests/tolerance.h"

namespace bertha {
namespace {

constexpr int kPoints = 1000003;

double true_u(double z) { return std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z); }

double true_gelu(double z) { return 0.5 * z * (1.0 + std::tanh(true_u(z))); }

double true_gelu_derivative(double z) {
  const double t = std::tanh(true_u(z));
  const double slope = std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3 * 0.044715 * z * z);
  return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * slope;
}

float point(int i, float low, float high) {
  return low + (high - low) * (static_cast<float>(i) / static_cast<float>(kPoints - 1));
}

TEST(VectorMath, ExpIsWithinItsBoundOverTheWholeRange) {
  double worst = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    const float x = point(i, -87.33f, 88.3f);
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_f32(x)) - want) / want);
  }
  EXPECT_LE(worst, tolerance::kExpF32);
  EXPECT_GT(worst, 0.0);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
}

TEST(VectorMath, ExpSaturatesAndKeepsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(-88.0f), 0.0f);
  EXPECT_EQ(exp_f32(-infinity), 0.0f);
  EXPECT_EQ(exp_f32(infinity), exp_f32(88.3f));
  EXPECT_TRUE(std::isfinite(exp_f32(infinity)));
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

/// A form of the GELU or its derivative beside the truth, from -20 to 20.
void expect_near_gelu(float (*found)(float), double (*truth)(double)) {
  double worst = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    const float z = point(i, -20.0f, 20.0f);
    const double exact = static_cast<double>(z);
    const double error = std::abs(static_cast<double>(found(z)) - truth(exact));
    worst = std::max(worst, error / std::max(1.0, std::abs(exact)));
  }
  EXPECT_LE(worst, tolerance::kGeluF32);
}

TEST(VectorMath, GeluAndItsDerivativeAreWithinTheirBounds) {
  expect_near_gelu(gelu, true_gelu);
  expect_near_gelu(gelu_derivative, true_gelu_derivative);
}

TEST(VectorMath, GeluStaysFiniteForLargeArgumentsAndKeepsNaN) {
  EXPECT_EQ(gelu(1e30f), 1e30f);
  EXPECT_NEAR(gelu(-1e30f), 0.0f, 1e-7f);
  EXPECT_EQ(gelu_derivative(1e30f), 1.0f);
  EXPECT_NEAR(gelu_derivative(-1e30f), 0.0f, 1e-7f);
  EXPECT_TRUE(std::isnan(gelu(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(gelu_derivative(std::numeric_limits<float>::quiet_NaN())));
}

double true_gelu_erf_derivative(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2) +
         z * std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi);
}

TEST(VectorMath, TheErfFormAndItsDerivativeAreWithinTheSameBounds) {
  expect_near_gelu(gelu_erf,
                   [](double z) { return 0.5 * z * std::erfc(-z / std::numbers::sqrt2); });
  expect_near_gelu(gelu_erf_derivative, true_gelu_erf_derivative);
  EXPECT_EQ(gelu_erf(1e30f), 1e30f);
  EXPECT_EQ(gelu_erf(-1e30f), 0.0f);
  EXPECT_EQ(gelu_erf_derivative(1e30f), 1.0f);
  EXPECT_TRUE(std::isnan(gelu_erf(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(gelu_erf_derivative(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace bertha
