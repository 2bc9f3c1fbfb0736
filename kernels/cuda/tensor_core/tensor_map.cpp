#include "kernels/cuda/tensor_core/tensor_map.h"

#include <initializer_list>

#include "kernels/base/cuda/cuda_check.h"

namespace bertha {
namespace {

/// An axis of a tensor, the innermost first.
struct Axis {
  int64_t extent;
  int64_t stride_bytes;  // not read for the innermost axis
  int box;
};

CUtensorMap tensor_map(CUtensorMapDataType type, const void* data, CUtensorMapSwizzle swizzle,
                       std::initializer_list<Axis> axes) {
  static const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
      find_driver_function("cuTensorMapEncodeTiled"));
  constexpr int kMaxAxes = 5;
  cuuint64_t extents[kMaxAxes];
  cuuint64_t strides[kMaxAxes];  // from the second axis on
  cuuint32_t box[kMaxAxes];
  cuuint32_t steps[kMaxAxes];
  cuuint32_t rank = 0;
  for (const Axis& axis : axes) {
    extents[rank] = static_cast<cuuint64_t>(axis.extent);
    if (rank > 0) strides[rank - 1] = static_cast<cuuint64_t>(axis.stride_bytes);
    box[rank] = static_cast<cuuint32_t>(axis.box);
    steps[rank] = 1;
    ++rank;
  }
  CUtensorMap map;
  const CUresult result =
      encode(&map, type, rank, const_cast<void*>(data), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  BERTHA_CHECK(result == CUDA_SUCCESS, "tensor map of ", rank, " axes, the innermost of ",
               extents[0], " elements, the outermost of ", extents[rank - 1],
               ": the driver returned ", static_cast<int>(result));
  return map;
}

CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kU8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    default:
      fail(ExitCode::kInternal, "tensor map of ", name(dtype), ", want 16 bits or bytes");
  }
}

/// Columns that are as wide as the swizzle.
int box_columns(DType dtype) { return static_cast<int>(128 / size_bytes(dtype)); }

}  // namespace

CUtensorMap matrix_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                              int box_rows) {
  const int64_t row_bytes = columns * size_bytes(dtype);
  return tensor_map(type_of(dtype), data, CU_TENSOR_MAP_SWIZZLE_128B,
                    {{columns, 0, box_columns(dtype)}, {rows, row_bytes, box_rows}});
}

CUtensorMap row_pairs_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                 int group_rows, int tile_rows) {
  BERTHA_CHECK(rows % group_rows == 0, "pairs of ", rows, " rows, want a multiple of ", group_rows);
  const int64_t row_bytes = columns * size_bytes(dtype);
  return tensor_map(type_of(dtype), data, CU_TENSOR_MAP_SWIZZLE_128B,
                    {{columns, 0, box_columns(dtype)},
                     {group_rows, row_bytes, 2},
                     {rows / group_rows, group_rows * row_bytes, tile_rows / group_rows}});
}

CUtensorMap even_odd_rows_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                                     int groups) {
  BERTHA_CHECK(rows % 16 == 0, "even and odd rows of ", rows, " rows, want a multiple of 16");
  const int64_t row_bytes = columns * size_bytes(dtype);
  return tensor_map(type_of(dtype), data, CU_TENSOR_MAP_SWIZZLE_128B,
                    {{columns, 0, box_columns(dtype)},
                     {8, 2 * row_bytes, 8},
                     {2, row_bytes, 2},
                     {rows / 16, 16 * row_bytes, groups}});
}

CUtensorMap transposed_fragments_tensor_map(DType dtype, const void* data, int64_t rows,
                                            int64_t columns, int box_rows) {
  BERTHA_CHECK(rows % 64 == 0, "fragments of ", rows, " rows, want a multiple of 64");
  const int64_t row_bytes = columns * size_bytes(dtype);
  return tensor_map(type_of(dtype), data, CU_TENSOR_MAP_SWIZZLE_64B,
                    {{columns, 0, box_columns(dtype) / 2},
                     {2, row_bytes, 2},
                     {4, 16 * row_bytes, 4},
                     {8, 2 * row_bytes, 8},
                     {rows / 64, 64 * row_bytes, box_rows / 64}});
}

CUtensorMap heads_tensor_map(DType dtype, const void* data, int64_t tokens, int64_t heads,
                             int64_t head_size, int box_rows) {
  const int64_t head_bytes = head_size * size_bytes(dtype);
  return tensor_map(type_of(dtype), data, CU_TENSOR_MAP_SWIZZLE_128B,
                    {{head_size, 0, box_columns(dtype)},
                     {heads, head_bytes, 1},
                     {tokens, heads * head_bytes, box_rows}});
}

CUtensorMap words_tensor_map(const uint32_t* data, int64_t rows, int64_t columns, int box_columns,
                             int box_rows) {
  return tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT32, data, CU_TENSOR_MAP_SWIZZLE_NONE,
                    {{columns, 0, box_columns}, {rows, 4 * columns, box_rows}});
}

}  // namespace bertha
