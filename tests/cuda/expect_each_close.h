#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

namespace bertha::testing {

/// As expect_close, with a magnitude of its own for every element: where sums have few terms here
/// and thousands there, the largest would hide errors in the small ones.
inline void expect_each_close(std::span<const float> actual, std::span<const double> expected,
                              std::span<const double> magnitudes, double tolerance,
                              const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  ASSERT_EQ(actual.size(), magnitudes.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (error <= tolerance * magnitudes[i]) continue;  // false for NaN
    ADD_FAILURE() << what << "[" << i << "] = " << actual[i] << ", want " << expected[i]
                  << " within " << tolerance * magnitudes[i];
    return;
  }
}

}  // namespace bertha::testing
