#pragma once

#include <cfloat>
#include <cmath>

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

}  // namespace bertha
