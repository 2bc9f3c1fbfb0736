#include "kernels/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/support/tolerance.h"

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

TEST(VectorMath, GeluAndItsDerivativeAreWithinTheirBounds) {
  double worst = 0.0;
  double worst_derivative = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    const float z = point(i, -20.0f, 20.0f);
    const double exact = static_cast<double>(z);
    const double scale = std::max(1.0, std::abs(exact));
    worst = std::max(worst, std::abs(static_cast<double>(gelu(z)) - true_gelu(exact)) / scale);
    const double derivative = static_cast<double>(gelu_derivative(z));
    worst_derivative =
        std::max(worst_derivative, std::abs(derivative - true_gelu_derivative(exact)) / scale);
  }
  EXPECT_LE(worst, tolerance::kGeluF32);
  EXPECT_LE(worst_derivative, tolerance::kGeluF32);
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
  double worst = 0.0;
  double worst_derivative = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    const float z = point(i, -20.0f, 20.0f);
    const double exact = static_cast<double>(z);
    const double scale = std::max(1.0, std::abs(exact));
    const double want = 0.5 * exact * std::erfc(-exact / std::numbers::sqrt2);
    worst = std::max(worst, std::abs(static_cast<double>(gelu_erf(z)) - want) / scale);
    const double derivative = static_cast<double>(gelu_erf_derivative(z));
    worst_derivative =
        std::max(worst_derivative, std::abs(derivative - true_gelu_erf_derivative(exact)) / scale);
  }
  EXPECT_LE(worst, tolerance::kGeluF32);
  EXPECT_LE(worst_derivative, tolerance::kGeluF32);
  EXPECT_EQ(gelu_erf(1e30f), 1e30f);
  EXPECT_EQ(gelu_erf(-1e30f), 0.0f);
  EXPECT_EQ(gelu_erf_derivative(1e30f), 1.0f);
  EXPECT_TRUE(std::isnan(gelu_erf(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(gelu_erf_derivative(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace bertha
