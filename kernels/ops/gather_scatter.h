#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// picked[i] = source[indices[i]]; an index of -1 (padding) gives a row of zeros.
///
/// Letters   T = source rows, M = picked rows, H = columns.
/// Writes    overwrites picked.
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  View source;   // io  [T, H]
  View indices;  // i32 [M]  in [-1, T)
  View picked;   // io  [M, H]  out
};

/// target[indices[i]] += rows[i]; index -1 is skipped. Indices other than -1 are unique, so that
/// the result is deterministic without atomics.
///
/// Writes    adds to target.
struct ScatterAddRows {
  static constexpr const char* kName = "scatter_add_rows";
  View rows;     // io  [M, H]
  View indices;  // i32 [M]
  View target;   // io  [T, H]  adds
};

void validate(const GatherRows& args);
void validate(const ScatterAddRows& args);

}  // namespace bertha
