#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// to[i] = from[i], rounded to nearest even when narrowing. Dtypes f32, f16, bf16, f64.
struct Cast {
  static constexpr const char* kName = "cast";
  View from;  // any [n]
  View to;    // any [n]  out
};

/// values[i] = value. Dtypes f64, f32, f16, bf16, i64, i32.
struct Fill {
  static constexpr const char* kName = "fill";
  View values;  // any [n]  out
  double value = 0.0;
};

/// target[0] = numerator / max(1, denominator[0]) * loss_scale of the state: the gradient scale of
/// a loss mean, computed in the memory of the counts.
struct GradientScale {
  static constexpr const char* kName = "gradient_scale";
  View denominator;  // i64 [1]  rows in the mean: of the step, or of this micro-batch
  View state;        // u8  [sizeof(LambState)]; without data the loss scale is 1
  View target;       // f32 [1]  out
  double numerator = 1.0;
  View fp8_scale = {};          // f32 [1]  out, optional: softmax_gradient_scale()
  View fp8_inverse_scale = {};  // f32 [1]  out with fp8_scale
};

void validate(const Cast& args);
void validate(const Fill& args);
void validate(const GradientScale& args);

}  // namespace bertha
