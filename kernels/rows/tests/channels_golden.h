#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/tests/host_tensor.h"
#include "kernels/rows/tests/golden.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha {

inline ChannelsExtents golden_extents(const GoldenCase& golden) {
  const std::vector<double> extents = golden.numbers("extents");
  BERTHA_CHECK(extents.size() == 3, golden.path, ": extents has ", extents.size(),
               " numbers, expected 3");
  return {static_cast<int64_t>(extents[0]), static_cast<int64_t>(extents[1]),
          static_cast<int64_t>(extents[2])};
}

/// A field of inputs, which are exact in f32.
inline HostTensor<float> golden_tensor(const GoldenCase& golden, const std::string& field,
                                       std::vector<int64_t> extents) {
  HostTensor<float> tensor;
  tensor.extents = std::move(extents);
  for (const double value : golden.numbers(field)) {
    tensor.values.push_back(static_cast<float>(value));
  }
  return tensor;
}

/// As expect_close with one magnitude for all elements; NaN and infinities are expected exactly
/// where the golden values have them.
inline void expect_like_golden(const HostTensor<float>& found, const std::vector<double>& wanted,
                               double tolerance, double magnitude, const std::string& what) {
  ASSERT_EQ(found.values.size(), wanted.size()) << what;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto value = static_cast<double>(found.values[i]);
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(value)) << what << "[" << i << "] = " << value;
    } else if (std::isinf(wanted[i])) {
      EXPECT_EQ(value, wanted[i]) << what << "[" << i << "]";
    } else {
      EXPECT_NEAR(value, wanted[i], tolerance * magnitude) << what << "[" << i << "]";
    }
  }
}

}  // namespace bertha
