#pragma once

#include <vector>

#include "kernels/base/dtype.h"

namespace bertha::testing {

/// A table [rows, width] of `dtype` that begins `offset` elements behind an aligned address and
/// holds 1 everywhere, between guards that hold 2. Every row receives 1 .. width in each of `times`
/// blocks through add_run_atomically. Returns guard, table, guard: `offset` + rows * width + 9
/// elements.
std::vector<float> paired_adds(DType dtype, int rows, int width, int offset, int times);

}  // namespace bertha::testing
