#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// result (+)= sum of values[i]^2 in f64. NaN and infinities propagate: a result that is not
/// finite means that some value was not (or that the sum overflowed f64).
///
/// Dtypes    values f32, f16, bf16.
/// Exact     deterministic.
struct SumOfSquares {
  static constexpr const char* kName = "sum_of_squares";
  View values;  // io  [P]
  View result;  // f64 [1]  out
  Accumulate accumulate = Accumulate::kNo;
};

void validate(const SumOfSquares& args);

}  // namespace bertha
