#pragma once

#include "kernels/base/view.h"

namespace bertha {

class ArgumentCheck;

/// A result [R, C] that an operation rounds to fp8 as it computes it. q, amax and saturated are
/// those of Quantize of the result in io, bit for bit; the view of the result in io is memory that
/// the operation may use, with undefined contents afterwards. Without data in q: not wanted.
struct Fp8Result {
  View q = {};          // fp8 [R, C]  out
  View scale = {};      // f32 [1]
  View amax = {};       // f32 [1]     in, out
  View saturated = {};  // i64 [1]     in, out
  View live_rows = {};  // i32 [1]     rows that are no padding; without data: all
};

void check_fp8_result(const ArgumentCheck& check, const char* field, const Fp8Result& result,
                      int64_t rows, int64_t columns);

}  // namespace bertha
