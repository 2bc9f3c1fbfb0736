#pragma once

#include <cstdint>

#include "kernels/base/dropout_bits.h"
#include "tests/support/host_tensor.h"

namespace bertha {

/// The dropout of one operation as its contract says it, element by element.
struct NaiveDropout {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t site = 0;
  float probability = 0.0f;

  bool drops(int64_t element) const { return !is_kept(seed, step, site, element, probability); }
  double factor(int64_t element) const {
    return drops(element) ? 0.0 : 1.0 / (1.0 - static_cast<double>(probability));
  }
  /// values[i] * factor(i).
  std::vector<double> of(std::vector<double> values) const {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factor(static_cast<int64_t>(i));
    return values;
  }
};

}  // namespace bertha
