#pragma once

#include <vector>

#include "kernels/base/dtype.h"

namespace bertha::testing {

/// Where the left operand of a GEMM of tiles comes from.
enum class Left { kRegisters, kShared, kSharedTransposed };

/// One 64 x 64 x 64 GEMM by a warpgroup, both tiles loaded by TMA.
/// left: [m][k], for kSharedTransposed [k][m]; right: [n][k], or [k][n] where right_transposed.
/// Both row-major, rounded to `dtype` (f16 or bf16). Returns [m][n].
std::vector<float> wgmma_gemm(DType dtype, Left left_from, bool right_transposed,
                              const std::vector<float>& left, const std::vector<float>& right);

/// The box of 64 rows and 64 columns at (row, column) of a matrix [rows][columns], as shared memory
/// has it after the copy, its swizzle undone.
std::vector<float> copied_box(DType dtype, const std::vector<float>& matrix, int rows, int columns,
                              int row, int column);

}  // namespace bertha::testing
