#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/host_tensor.h"
#include "tests/support/source_dir.h"

namespace bertha::testing {

// tests/golden/channels_golden.json, made by PyTorch in float64; see make_channels_golden.py.

inline nlohmann::json channels_golden(const std::string& operation) {
  const std::string path = std::string(kSourceDir) + "/tests/golden/channels_golden.json";
  std::ifstream file(path);
  BERTHA_CHECK(file.good(), path, " cannot be read");
  return nlohmann::json::parse(file).at(operation);
}

inline std::vector<double> golden_numbers(const nlohmann::json& field) {
  std::vector<double> values;
  for (const nlohmann::json& value : field) {
    if (value.is_number()) {
      values.push_back(value.get<double>());
    } else if (value == "nan") {
      values.push_back(std::numeric_limits<double>::quiet_NaN());
    } else {
      values.push_back(value == "-inf" ? -HUGE_VAL : HUGE_VAL);
    }
  }
  return values;
}

/// Inputs, which are exact in f32.
inline HostTensor<float> golden_tensor(const nlohmann::json& field, std::vector<int64_t> extents) {
  HostTensor<float> tensor;
  tensor.extents = std::move(extents);
  for (const double value : golden_numbers(field)) {
    tensor.values.push_back(static_cast<float>(value));
  }
  return tensor;
}

/// As expect_close with one magnitude for all; NaN and infinities where they are wanted and nowhere
/// else.
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

}  // namespace bertha::testing
