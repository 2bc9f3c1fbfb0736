#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// y = (x - mean) * rstd * gamma + beta, row by row; of x + residual if a residual is given.
///
/// Letters   R = rows, C = columns.
/// Dtypes    io is one of f64, f32, f16, bf16; statistics (stat) f64 for f64, f32 otherwise;
///           parameters (par) io, or f32 next to f16 and bf16, as mixed precision has them.
///           The CPU takes no f16 and bf16.
/// Writes    overwrites y, mean, rstd, and with a residual `sum` (may be x's or residual's memory).
/// Exact     deterministic; statistics in two passes, of f16 and bf16 on a GPU in one around a
///           value near the mean where rows are aligned (CPU: f64).
/// Needs     C >= 1; R == 0 is a no-op.
/// Source    Ba, Kiros, Hinton 2016.
struct LayerNormFwd {
  static constexpr const char* kName = "layer_norm_fwd";
  View x;                  // io  [R, C]
  View gamma;              // par [C]     without data: 1
  View beta;               // par [C]     without data: 0
  View y;                  // io  [R, C]  out
  View mean;               // stat [R]    out; optional, as rstd
  View rstd;               // stat [R]    out
  double epsilon = 1e-12;  // 0 or more
  View residual = {};      // io [R, C]       without data: 0
  View sum = {};  // io [R, C]  out  x + residual, rounded: the normalized values, and backward's x
};

/// Writes    overwrites dx (may be dy's memory); dgamma and dbeta as `accumulate` says.
struct LayerNormBwd {
  static constexpr const char* kName = "layer_norm_bwd";
  View dy;      // io  [R, C]
  View x;       // io  [R, C]
  View mean;    // stat [R]
  View rstd;    // stat [R]
  View gamma;   // par [C]     without data: 1
  View dx;      // io  [R, C]  out; a residual's gradient is the same
  View dgamma;  // par [C]     out; optional
  View dbeta;   // par [C]     out; optional
  Accumulate accumulate = Accumulate::kNo;
};

/// The dtype of the parameters: f32 if one of them that has data is f32, otherwise io.
DType parameter_dtype(const LayerNormFwd& args);
DType parameter_dtype(const LayerNormBwd& args);

void validate(const LayerNormFwd& args);
void validate(const LayerNormBwd& args);

}  // namespace bertha
