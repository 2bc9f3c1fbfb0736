#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/arguments.h"
#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/host_tensor.h"

namespace bertha {

/// The dropout of one operation as its contract says it, element by element.
struct NaiveDropout {
  uint64_t seed = 99;
  uint64_t step = 1234;
  uint32_t site = 5;
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
  HostTensor<uint64_t> state() const { return random_state(seed, step); }
  Dropout with(const View& random) const {
    return {.random = random, .probability = probability, .site = site};
  }
  HostTensor<uint8_t> mask(int64_t rows, int64_t columns) const {
    HostTensor<uint8_t> bits({rows, columns / 8});
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (!drops(i)) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | (1u << (i % 8)));
    }
    return bits;
  }
};

}  // namespace bertha
