#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/tolerance.h"

namespace bertha {

/// A loss made of outputs y with fixed random weights c: value = sum c[i] y[i] in f64, and the
/// root of sum (c[i] y[i])^2, to which the rounding of y adds up.
struct WeightedSum {
  double value = 0.0;
  double magnitude = 0.0;
};

inline WeightedSum weighted_sum(const HostTensor<float>& y, const HostTensor<float>& weights) {
  WeightedSum sum;
  double squares = 0.0;
  for (int64_t i = 0; i < y.elements(); ++i) {
    const double term = static_cast<double>(y[i]) * static_cast<double>(weights[i]);
    sum.value += term;
    squares += term * term;
  }
  sum.magnitude = std::sqrt(squares);
  return sum;
}

/// Moves a few elements of `input` at once and compares the slope of `loss` (which runs the forward
/// operation) with the gradient. Fourth-order central differences with step 2^-6; the elements of
/// `input` are multiples of 2^-10, so that the moved values are exact.
inline void expect_gradient(const std::string& what, HostTensor<float>& input,
                            const HostTensor<float>& gradient,
                            const std::function<WeightedSum()>& loss) {
  constexpr float kStep = 1.0f / 64.0f;
  constexpr int kDirections = 6;
  constexpr int kMovedElements = 6;
  ASSERT_EQ(input.elements(), gradient.elements()) << what;
  std::mt19937 engine(static_cast<uint32_t>(input.elements()));
  std::uniform_int_distribution<int64_t> element(0, input.elements() - 1);
  const HostTensor<float> before = input;
  for (int trial = 0; trial < kDirections; ++trial) {
    HostTensor<float> direction;
    direction.values.assign(before.values.size(), 0.0f);
    for (int k = 0; k < kMovedElements; ++k) {
      direction[element(engine)] = engine() % 2 == 0 ? 1.0f : -1.0f;
    }
    const auto moved = [&](float steps) {
      for (int64_t i = 0; i < before.elements(); ++i) {
        input[i] = before[i] + steps * kStep * direction[i];
      }
      return loss();
    };
    const WeightedSum centre = moved(0.0f);
    const double near = moved(1.0f).value - moved(-1.0f).value;
    const double far = moved(2.0f).value - moved(-2.0f).value;
    const double slope = (8.0 * near - far) / (12.0 * static_cast<double>(kStep));
    double expected = 0.0;
    for (int64_t i = 0; i < before.elements(); ++i) {
      expected += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
    }
    EXPECT_NEAR(expected, slope, tolerance::kFiniteDifference * (1.0 + centre.magnitude))
        << what << ", direction " << trial;
  }
  input.values = before.values;
}

}  // namespace bertha
