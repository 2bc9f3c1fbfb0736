#pragma once

#include "kernels/base/dropout_bits.h"
#include "kernels/ops/common.h"
#include "tests/support/host_tensor.h"

namespace bertha::testing {

/// A dropout with its decisions one element at a time, by the definition.
struct ReferenceDropout {
  float probability = 0.0f;
  uint32_t site = 5;
  uint64_t seed = 99;
  uint64_t step = 1234;

  bool keeps(int64_t element) const {
    return probability == 0.0f || is_kept(seed, step, site, element, probability);
  }
  double factor(int64_t element) const {
    return keeps(element) ? 1.0 / (1.0 - static_cast<double>(probability)) : 0.0;
  }
  HostTensor<uint64_t> state() const { return random_state(seed, step); }
  Dropout with(const View& random) const {
    return {.random = random, .probability = probability, .site = site};
  }
  HostTensor<uint8_t> mask(int64_t rows, int64_t columns) const {
    HostTensor<uint8_t> bits({rows, columns / 8});
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (keeps(i)) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | (1u << (i % 8)));
    }
    return bits;
  }
};

}  // namespace bertha::testing
