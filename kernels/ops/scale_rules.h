#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"

namespace bertha {

// The scale of an fp8 matrix: one source for every backend.

/// Whether an amax says which scale suits: it is above zero and finite.
BERTHA_HOST_DEVICE inline bool gives_scale(float amax) { return amax > 0.0f && amax <= FLT_MAX; }

/// Exponent e of UpdateScales for a finite amax above zero.
BERTHA_HOST_DEVICE inline int scale_exponent(float amax, DType format) {
  // The largest numbers are 0.875 * 2^9 and 0.875 * 2^16.
  int exponent = 0;
  const float fraction = std::frexp(amax, &exponent);
  const int fits = (format == DType::kE4M3 ? 9 : 16) - exponent - (fraction > 0.875f ? 1 : 0);
  return fits < -100 ? -100 : fits > 100 ? 100 : fits;
}

/// Scale of an e5m2 matrix of softmax gradients times `target`. No element is larger than target,
/// and labels often have as large ones: this scale makes them 2^15, so that not all are rounded the
/// same way. A bf16 number, as products with bf16 elements need.
BERTHA_HOST_DEVICE inline float softmax_gradient_scale(float target) {
  const float scale = 32768.0f / target;
  uint32_t bits = 0;
  memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + 0x8000u) & 0xFFFF0000u;
  float rounded = 0.0f;
  memcpy(&rounded, &bits, sizeof(rounded));
  return rounded;
}

}  // namespace bertha
