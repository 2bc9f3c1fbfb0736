#pragma once

#include "kernels/base/arguments.h"
#include "kernels/ops/quantize.h"

namespace bertha {

/// Statistics and parameters of a LayerNorm that has been computed, with the same epsilon: the CPU
/// computes the statistics again.
struct ResidualNorm {
  View mean;   // f32 [T]
  View rstd;   // f32 [T]
  View gamma;  // io  [H]
  View beta;   // io  [H]
};

/// Closes a transformer sub-layer: y = LayerNorm(residual + dropout(x + bias)) * gamma + beta.
///
/// If the next GEMM reads y_fp8, y in io is only the residual of the next sub-layer, which can
/// compute it from this `sum` by residual_norm, with the same bits.
///
/// Letters   T = tokens, H = hidden.
/// Dtypes    io is one of f32, f16, bf16 and the same for every io view; statistics f32.
/// Random    element index t * H + h, or dropout_rows[t] * H + h.
/// Writes    overwrites sum, y, mean, rstd, and mask unless dropout has probability 0.
/// Exact     deterministic; statistics of the sum as rounded to io, two-pass (CPU: f64).
/// Needs     H % 8 == 0; T == 0 is a no-op.
/// Source    Ba, Kiros, Hinton 2016, eq. 4; post-LN placement as in Devlin et al. 2018.
struct ResidualLnFwd {
  static constexpr const char* kName = "residual_ln_fwd";
  View x;         // io  [T, H]  sub-layer output before its bias
  View bias;      // io  [H]
  View residual;  // io  [T, H]  input of the sub-layer
  View gamma;     // io  [H]
  View beta;      // io  [H]
  View sum;       // io  [T, H]  out: residual + dropout(x + bias), saved for backward
  View y;         // io  [T, H]  out
  View mean;      // f32 [T]     out
  View rstd;      // f32 [T]     out, 1 / standard deviation
  View mask;      // u8  [T, H / 8]  out: kept elements
  Dropout dropout;
  View dropout_rows = {};  // i32 [T]  rows of the matrix from which these were gathered; -1: any
  float epsilon = 1e-12f;
  Fp8Result y_fp8 = {};             // [T, H]  out in addition to y
  ResidualNorm residual_norm = {};  // with data: the residual is the LayerNorm of `residual`
  bool is_y_needed = true;          // false, with y_fp8: the contents of y are undefined
};

/// Gradients of ResidualLnFwd: dresidual = dLN/dsum, dx = dresidual at kept elements / (1 - p).
///
/// Writes    overwrites dresidual and dx; dgamma, dbeta, dbias as `accumulate` says.
///           dresidual may be dy's memory. dbias is a sum of what was there before rounding to fp8.
struct ResidualLnBwd {
  static constexpr const char* kName = "residual_ln_bwd";
  View dy;         // io  [T, H]
  View sum;        // io  [T, H]
  View mean;       // f32 [T]
  View rstd;       // f32 [T]
  View mask;       // u8  [T, H / 8]  from forward
  View gamma;      // io  [H]
  View dresidual;  // io  [T, H]  out
  View dx;         // io  [T, H]  out
  View dgamma;     // io  [H]     out
  View dbeta;      // io  [H]     out
  View dbias;      // io  [H]     out: column sums of dx
  Dropout dropout;
  Accumulate accumulate = Accumulate::kNo;
  Fp8Result dx_fp8 = {};  // [T, H]  out in place of dx
};

void validate(const ResidualLnFwd& args);
void validate(const ResidualLnBwd& args);

}  // namespace bertha
