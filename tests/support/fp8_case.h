#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/fp8.h"
#include "kernels/base/tests/host_tensor.h"

namespace bertha {

/// Values that meet every branch of rounding to 8 bits at a scale near 1: ties, subnormals, zeros
/// of both signs, more than the formats hold.
inline HostTensor<float> fp8_values(int64_t rows, int64_t columns, uint32_t seed) {
  HostTensor<float> values = random_tensor({rows, columns}, seed);
  constexpr float kSpecial[] = {0.0f,    -0.0f,   0x1p-10f, 0x1.8p-9f, -0x1p-16f, 0x1.8p-17f,
                                1.0625f, 1.1875f, 463.0f,   -464.0f,   61439.0f,  -61440.0f};
  for (int64_t i = 0; i < values.elements(); ++i) {
    if (i % 3 == 0) values[i] = kSpecial[(i / 3) % 12];
    if (i % 3 == 1) values[i] = std::ldexp(values[i], static_cast<int>(i % 40) - 24);
  }
  return values;
}

/// A byte of that format as a number.
inline double fp8_value(DType format, uint8_t code) {
  return static_cast<double>(format == DType::kE4M3 ? to_float(Fp8E4M3{code})
                                                    : to_float(Fp8E5M2{code}));
}

/// Half a unit in the last place of a number of that size: 3 or 2 bits behind the point.
inline double fp8_half_unit(DType format, double value) {
  const bool e4m3 = format == DType::kE4M3;
  return std::max(std::ldexp(std::abs(value), e4m3 ? -4 : -3), std::ldexp(1.0, e4m3 ? -10 : -17));
}

}  // namespace bertha
