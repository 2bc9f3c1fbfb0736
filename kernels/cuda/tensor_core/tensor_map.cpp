#include "kernels/cuda/tensor_core/tensor_map.h"

#include "kernels/cuda/cuda_check.h"

namespace bertha {
namespace {

constexpr int kBoxColumns = 64;  // 128 bytes, the width of the swizzle

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, asked of the runtime: linking with the driver would tie the program to
/// machines that have one.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  BERTHA_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                     kSinceCuda, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    fail(ExitCode::kEnvironment, "the CUDA driver has no tensor maps, want one for CUDA 12.0");
  }
  return reinterpret_cast<Encode>(function);
}

/// The map of a row-major matrix, in boxes of contiguous rows, or of some rows out of each group.
struct Matrix {
  CUtensorMapDataType type;
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t element_bytes;
  int box_columns;
  int box_rows;  // in each group
  CUtensorMapSwizzle swizzle;
  int group_rows = 0;  // 0: the matrix is one group
  int box_groups = 1;
};

CUtensorMap tensor_map(const Matrix& of) {
  static const Encode encode = find_encode();
  const bool grouped = of.group_rows > 0;
  const int64_t group_rows = grouped ? of.group_rows : of.rows;
  const auto row_bytes = static_cast<cuuint64_t>(of.columns * of.element_bytes);
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(of.columns),
                                static_cast<cuuint64_t>(group_rows),
                                static_cast<cuuint64_t>(of.rows / group_rows)};
  const cuuint64_t strides[] = {row_bytes, row_bytes * static_cast<cuuint64_t>(group_rows)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(of.box_columns),
                            static_cast<cuuint32_t>(of.box_rows),
                            static_cast<cuuint32_t>(of.box_groups)};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, of.type, grouped ? 3 : 2, const_cast<void*>(of.data), extents, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, of.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  BERTHA_CHECK(result == CUDA_SUCCESS, "tensor map of [", of.rows, ", ", of.columns,
               "] in boxes of [", of.box_groups, " x ", of.box_rows, ", ", of.box_columns,
               "]: the driver answers ", static_cast<int>(result));
  return map;
}

CUtensorMapDataType type_of(DType dtype) {
  BERTHA_CHECK(dtype == DType::kF16 || dtype == DType::kBF16, "tensor map of ", name(dtype),
               ", want f16 or bf16");
  return dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

}  // namespace

CUtensorMap matrix_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                              int box_rows) {
  return tensor_map({.type = type_of(dtype),
                     .data = data,
                     .rows = rows,
                     .columns = columns,
                     .element_bytes = 2,
                     .box_columns = kBoxColumns,
                     .box_rows = box_rows,
                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
}

CUtensorMap row_pairs_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                 int groups) {
  BERTHA_CHECK(rows % 8 == 0, "pairs of ", rows, " rows, want a multiple of 8");
  return tensor_map({.type = type_of(dtype),
                     .data = data,
                     .rows = rows,
                     .columns = columns,
                     .element_bytes = 2,
                     .box_columns = kBoxColumns,
                     .box_rows = 2,
                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                     .group_rows = 8,
                     .box_groups = groups});
}

CUtensorMap words_tensor_map(const uint32_t* data, int64_t rows, int64_t columns, int box_columns,
                             int box_rows) {
  return tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_UINT32,
                     .data = data,
                     .rows = rows,
                     .columns = columns,
                     .element_bytes = 4,
                     .box_columns = box_columns,
                     .box_rows = box_rows,
                     .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
}

}  // namespace bertha
