#pragma once

#include "kernels/ops/quantize.h"

namespace bertha {

// A GEMM and the Quantize of its result, one after the other, which a backend may compute in one
// kernel.

/// Writes    linear.y holds nothing afterwards: it is memory that the operation may use.
/// Needs     quantize.x is linear.y.
/// Exact     one kernel rounds linear.y to f16 instead of io.
struct LinearFwdQuantize {
  static constexpr const char* kName = "linear_fwd_quantize";
  LinearFwd linear;
  Quantize quantize;
};

/// Writes    linear.dx holds nothing afterwards: it is memory that the operation may use.
/// Needs     quantize.x is linear.dx.
/// Exact     one kernel does not round linear.dx, and may have column sums of 16 rows in io.
struct LinearBwdDataQuantize {
  static constexpr const char* kName = "linear_bwd_data_quantize";
  LinearBwdData linear;
  Quantize quantize;
};

void validate(const LinearFwdQuantize& args);
void validate(const LinearBwdDataQuantize& args);

}  // namespace bertha
