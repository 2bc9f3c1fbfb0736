#include "kernels/cuda/attention/tensor_map.h"

#include "kernels/cuda/cuda_check.h"

namespace bertha {
namespace {

constexpr int kBoxColumns = 64;  // 128 bytes, the width of the swizzle
constexpr int64_t kElementBytes = 2;

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

}  // namespace

CUtensorMap matrix_tensor_map(DType dtype, const void* data, int64_t rows, int64_t columns,
                              int box_rows) {
  BERTHA_CHECK(dtype == DType::kF16 || dtype == DType::kBF16, "tensor map of ", name(dtype),
               ", want f16 or bf16");
  static const Encode encode = find_encode();
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[] = {static_cast<cuuint64_t>(columns * kElementBytes)};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      const_cast<void*>(data), extents, row_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  BERTHA_CHECK(result == CUDA_SUCCESS, "tensor map of [", rows, ", ", columns, "] in boxes of ",
               box_rows, " rows: the driver answers ", static_cast<int>(result));
  return map;
}

}  // namespace bertha
