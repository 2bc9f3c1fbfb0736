#pragma once

#include "kernels/ops/common.h"

namespace bertha {

/// q = fp8(x * scale), in x's layout and transposed: GEMMs of 8-bit operands take both with the
/// summed dimension contiguous, so a matrix that enters two of them is stored twice.
///
/// Letters   R = rows, C = columns.
/// Dtypes    io is one of f32, f16, bf16; fp8 is e4m3 or e5m2, the same for both outputs.
/// Writes    overwrites q and transposed; amax becomes max(amax, |x|), saturated grows by the
///           number of elements with |x * scale| above the largest of the format (NaN is none of
///           them). Both are of the first `live_rows` rows alone; rows beyond are padding.
/// Exact     the same bits on every backend: one product in f32 (exact where scale is a power of
///           two), one rounding to nearest even, saturated. amax is an infinity or a NaN where x
///           has one, so that saturation hides none; a NaN stands above infinity.
/// Needs     0 <= live_rows <= R; R == 0 is a no-op. CUDA: R % 16 == 0, C % 16 == 0; x, q and
///           transposed 16-byte aligned. Without both outputs only amax is written, and scale and
///           saturated may have no data.
/// Source    Micikevicius et al. 2022, FP8 formats for deep learning.
struct Quantize {
  static constexpr const char* kName = "quantize";
  View x;           // io  [R, C]
  View scale;       // f32 [1]  a power of two, see UpdateScales
  View q;           // fp8 [R, C]  out; without data: not wanted
  View transposed;  // fp8 [C, R]  out; without data: not wanted
  View amax;        // f32 [1]     in, out
  View saturated;   // i64 [1]     in, out
  int64_t live_rows = 0;
};

/// scale = 2^e with the largest e at which amax * 2^e does not exceed the largest number of the
/// format: the scale of the next step's values, whose amax is still to come. One to two times the
/// amax of this step fit.
///
/// Letters   X = matrices.
/// Writes    scale and inverse_scale where amax is above zero and finite; amax becomes zero.
///           sum_of_squares becomes NaN where an amax is not finite: saturation hides infinities
///           from the gradients, and the optimizer skips a step whose sum is not finite.
/// Exact     e is cut to [-100, 100], so that the scale and its inverse are normal numbers.
struct UpdateScales {
  static constexpr const char* kName = "update_scales";
  View amax;            // f32 [X]  in, out
  View scale;           // f32 [X]  in, out
  View inverse_scale;   // f32 [X]  in, out
  View sum_of_squares;  // f64 [1]  in, out; without data: not wanted
  DType format = DType::kE4M3;
};

void validate(const Quantize& args);
void validate(const UpdateScales& args);

}  // namespace bertha
