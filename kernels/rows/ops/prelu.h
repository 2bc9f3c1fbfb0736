#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// y = x where x > 0, else slope[c] * x.
///
/// Letters   N = outer extent, C = channels, S = contiguous elements of one channel. Channels first
///           [N, C, H, W] is [N, C, H * W]; channels last [N, H, W, C] is [N * H * W, C, 1]; one
///           slope for all elements is [1, 1, elements].
/// Dtypes    io is one of f32, f16, bf16 and the same for every io view; computed in f32.
///           The CPU takes f32 alone.
/// Writes    overwrites y, which may be x's memory (backward then lacks x).
/// Exact     deterministic, one rounding. Zero counts as not positive: y = slope * 0. NaN gives
///           NaN; slope 0 times -infinity is NaN, as IEEE 754 has it.
/// Needs     any extents, zero included; 16-byte accesses where addresses allow them.
/// Source    He, Zhang, Ren, Sun 2015, eq. 1; corner cases as torch.nn.functional.prelu.
struct PreluFwd {
  static constexpr const char* kName = "prelu_fwd";
  View x;      // io  [N, C, S]
  View slope;  // io  [C]
  View y;      // io  [N, C, S]  out
};

/// dx = dy where x > 0, else slope[c] * dy; dslope[c] = sum of dy * x where x > 0 does not hold.
///
/// Writes    overwrites dx (may be dy's memory); dslope as `accumulate` says.
/// Exact     deterministic: dslope is summed in two levels of fixed order, in f32 (CPU: f64). An
///           element with x == 0 adds dy * 0 to dslope, and one with x NaN adds NaN.
struct PreluBwd {
  static constexpr const char* kName = "prelu_bwd";
  View dy;      // io  [N, C, S]
  View x;       // io  [N, C, S]
  View slope;   // io  [C]
  View dx;      // io  [N, C, S]  out
  View dslope;  // io  [C]        out
  Accumulate accumulate = Accumulate::kNo;
};

void validate(const PreluFwd& args);
void validate(const PreluBwd& args);

}  // namespace bertha
