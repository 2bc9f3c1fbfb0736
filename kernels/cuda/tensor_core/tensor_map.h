#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/base/dtype.h"

namespace bertha {

/// TMA descriptor of a row-major matrix [rows, columns] of f16, bf16, fp8 or u8 on the device, for
/// boxes of box_rows rows and 128 bytes of columns, swizzled over 128 bytes (the tiles of
/// wgmma.cuh). What lies past the last row or column is loaded as zeros. Goes to a kernel by value,
/// as `const __grid_constant__ CUtensorMap`.
///
/// Needs     data and rows at multiples of 16 bytes, box_rows at most 256.
/// Errors    Error(kInternal) otherwise, Error(kEnvironment) if the driver is older than tensor
///           maps (CUDA 12.0).
CUtensorMap matrix_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                              int box_rows);

/// The same with rows in another order: a box at (column, first, group) has rows `first` and
/// first + 1 of each of tile_rows / group_rows groups of group_rows rows: box row 2 j + i is row
/// group_rows (group + j) + first + i of the matrix.
///
/// Needs     rows and tile_rows multiples of group_rows; at most 256 groups.
CUtensorMap row_pairs_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                 int group_rows, int tile_rows);

/// The same with the even rows of each 16 before the odd ones: box row 16 j + 8 i + k of the box at
/// (column, 0, 0, group) is row 16 (group + j) + 2 k + i of the matrix.
///
/// Needs     rows a multiple of 16; groups at most 16.
CUtensorMap even_odd_rows_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                     int groups);

/// For storing boxes of 64 bytes of columns, swizzled over 64 bytes: box row
/// 64 j + 8 p + 2 c + i of the box at (column, 0, 0, 0, group) is row
/// 64 (group + j) + 16 c + 2 p + i of the matrix.
///
/// Needs     rows and box_rows multiples of 64, box_rows at most 256.
CUtensorMap transposed_fragments_tensor_map(DType dtype, const void* data, int64_t rows,
                                            int64_t columns, int box_rows);

/// TMA descriptor of [tokens, heads, head_size] of f16 or bf16 for boxes [box_rows, 1, 64],
/// swizzled as by matrix_tensor_map: columns of a box past the head are loaded as zeros, and not
/// stored. For tma_load_head and tma_store_head.
///
/// Needs     data at a multiple of 16 bytes, head_size a multiple of 8, box_rows at most 256.
CUtensorMap heads_tensor_map(DType dtype, const void* data, int64_t tokens, int64_t heads,
                             int64_t head_size, int box_rows);

/// A row-major matrix [rows, columns] of u32, in boxes of box_columns
/// columns, not swizzled.
///
/// Needs     data at a multiple of 16 bytes; columns and box_columns multiples of 4, at most 256 of
///           a box each way.
CUtensorMap words_tensor_map(const uint32_t* data, int64_t rows, int64_t columns, int box_columns,
                             int box_rows);

}  // namespace bertha
