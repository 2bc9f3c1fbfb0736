#pragma once

#include <span>

#include "kernels/ops/linear.h"

namespace bertha {

class ArgumentCheck;

/// The byte of a derivative of 0, and what 1 more adds: -0.14 to 1.135, where gelu' has -0.13 to
/// 1.13, within half a step.
inline constexpr int kDerivativeZero = 28;
inline constexpr float kDerivativeStep = 1.0f / 200;

/// q = fp8(f(x) * scale), in x's layout and transposed: GEMMs of 8-bit operands take both with the
/// summed dimension contiguous, so a matrix that enters two of them is stored twice.
///
///   f(x)             with
///   x                activation kNone
///   gelu(x)          a GELU; writes gelu'(x) to `derivative`, which the gradient below it needs
///   x * derivative   kNone and `derivative`
///
/// A matrix x of fp8 is transposed as it is; nothing else is then given or written.
///
/// f(x) is rounded to io before anything else: the outputs are the same as when an operation stores
/// it in io, and Quantize follows. On a GPU a GELU of 16 bits is computed in f16, has that rounding
/// instead, and is an infinity above 65,504.
///
/// Letters   R = rows, C = columns.
/// Dtypes    io is one of f32, f16, bf16; fp8 is e4m3 or e5m2, the same for both outputs.
/// Writes    overwrites q and transposed; amax becomes max(amax, |f(x)|), saturated grows by the
///           number of elements with |f(x) * scale| above the largest of the format (NaN is none of
///           them). Both are of the first live_rows rows alone; rows beyond are padding.
///           column_sums (+)= the sums of all rows of f(x), in a fixed order. derivative, a byte:
///           gelu'(x) / kDerivativeStep + kDerivativeZero to the nearest integer, undefined where x
///           is NaN.
/// Exact     of f(x) the same bits on every backend: one product in f32 (exact where scale is a
///           power of two; with other scales, which must be bf16 numbers, rounded to bf16 on a GPU
///           if x is), one rounding to nearest even, saturated. amax is an infinity or a NaN
///           where f(x) has one, so that saturation hides none; a NaN stands above infinity.
///           A byte of derivative differs by at most two where gelu' is computed in f16.
/// Needs     0 <= live_rows; R == 0 is a no-op. CUDA: R % 16 == 0, C % 16 == 0; matrices
///           16-byte aligned. Where no output is wanted only amax is written, and scale and
///           saturated may have no data. column_sums not with a GELU.
/// Source    Micikevicius et al. 2022, FP8 formats for deep learning.
struct Quantize {
  static constexpr const char* kName = "quantize";
  View x;                                     // io or fp8 [R, C]
  View scale;                                 // f32 [1]  see UpdateScales
  View q;                                     // fp8 [R, C]  out; optional
  View transposed;                            // fp8 [C, R]  out; optional
  View amax;                                  // f32 [1]     in, out
  View saturated;                             // i64 [1]     in, out
  View live_rows = {};                        // i32 [1]     without data: all rows
  Activation activation = Activation::kNone;  // or a GELU
  View derivative = {};   // u8 [R, C]  out with a GELU, optional; in with kNone, for a gradient
  View column_sums = {};  // io [C]     out; optional
  Accumulate accumulate_sums = Accumulate::kNo;
};

/// The weights of one or more encoder layers in as few kernels as possible: small matrices, each of
/// which would need a separate one.
///
/// Needs     all of one dtype and format, with at least one output, without an activation.
struct QuantizeWeights {
  static constexpr const char* kName = "quantize_weights";
  std::span<const Quantize> weights;
};

/// A result [R, C] that an operation rounds to fp8 as it computes it. q, amax and saturated are bit
/// for bit as from Quantize of the result in io. If q replaces that result, its view is memory that
/// the operation may use, with undefined contents afterwards. Without data in q: not requested.
struct Fp8Result {
  View q = {};          // fp8 [R, C]  out
  View scale = {};      // f32 [1]
  View amax = {};       // f32 [1]     in, out
  View saturated = {};  // i64 [1]     in, out
  View live_rows = {};  // i32 [1]     rows that are not padding; without data: all
};

void check_fp8_result(const ArgumentCheck& check, const char* field, const Fp8Result& result,
                      int64_t rows, int64_t columns);

/// The Quantize that computes `result` from `x`, the result in io, if an operation does not do it.
Quantize quantize_to(const Fp8Result& result, const View& x);

/// cuBLASLt reads the inverse scale of an operand at a 16-byte aligned address alone.
inline constexpr int64_t kInverseScaleCopies = 4;

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
  View inverse_scale;   // f32 [X, 4]  in, out: one number four times, see kInverseScaleCopies
  View sum_of_squares;  // f64 [1]  in, out; optional
  DType format = DType::kE4M3;
};

void validate(const Quantize& args);
void validate(const QuantizeWeights& args);
void validate(const UpdateScales& args);

}  // namespace bertha
