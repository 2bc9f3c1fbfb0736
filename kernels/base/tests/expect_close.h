#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

namespace bertha {

inline double largest_magnitude(std::span<const double> values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Every actual[i] is within tolerance * magnitude of expected[i]; magnitude is that of the largest
/// expected element unless given. Shows the worst element.
inline void expect_close(std::span<const float> actual, std::span<const double> expected,
                         double tolerance, const std::string& what, double magnitude = 0.0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double scale = magnitude > 0.0 ? magnitude : largest_magnitude(expected);
  double worst = -1.0;
  size_t at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= worst)) {  // also when the error is NaN
      worst = error;
      at = i;
      if (std::isnan(error)) break;
    }
  }
  if (actual.empty()) return;
  EXPECT_LE(worst, tolerance * scale) << what << "[" << at << "] = " << actual[at] << ", want "
                                      << expected[at] << " within " << tolerance * scale;
}

}  // namespace bertha
