#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace bertha {

/// Equal where infinite, NaN where NaN; elsewhere within `tolerance` of the largest finite expected
/// value, or of 1.
inline void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                        double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1.0;
  for (const double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * largest)
        << what << '[' << i << "] = " << actual[i] << ", want " << expected[i];
  }
}

}  // namespace bertha
