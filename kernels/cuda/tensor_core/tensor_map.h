#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/base/dtype.h"

namespace bertha {

/// TMA descriptor of a row-major matrix [rows, columns] of f16 or bf16 on the device, for boxes of
/// box_rows rows and 64 columns, swizzled over 128 bytes (the tiles of wgmma.cuh). Rows past the
/// last are loaded as zeros. Goes to a kernel by value,
/// as `const __grid_constant__ CUtensorMap`.
///
/// Needs     data at a multiple of 16 bytes, columns a multiple of 64, box_rows at most 256.
/// Errors    Error(kInternal) where that is not so or the driver refuses, Error(kEnvironment) when
///           the driver is older than tensor maps (CUDA 12.0).
CUtensorMap matrix_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                              int box_rows);

/// The same with rows in another order: a box at (column, first, group) has 64 columns of rows
/// `first` and first + 1 of each of `groups` groups of 8 rows: box row 2 j + i is row
/// 8 (group + j) + first + i of the matrix.
///
/// Needs     rows a multiple of 8; groups at most 256.
CUtensorMap row_pairs_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                 int groups);

/// A row-major matrix [rows, columns] of u32, in boxes of box_columns
/// columns, not swizzled.
///
/// Needs     data at a multiple of 16 bytes; columns and box_columns multiples of 4, at most 256 of
///           a box each way.
CUtensorMap words_tensor_map(const uint32_t* data, int64_t rows, int64_t columns, int box_columns,
                             int box_rows);

}  // namespace bertha
