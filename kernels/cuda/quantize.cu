// Quantize: an io matrix to fp8 in its layout and transposed, in one pass.
//
// A block takes a tile of 128 x 128 elements; a thread 8 rows x 8 columns of it, which it reads in
// accesses of 16 bytes, rounds two at a time (cvt.rn.satfinite), stores by rows, and turns into 8
// columns of 8 bytes. These go through 16 KiB of shared memory, so that each column leaves the
// block in 128 contiguous bytes. Units of 8 bytes lie at (row group XOR column group), free of bank
// conflicts both ways. amax and the count of saturated elements are reduced per warp and cost one
// atomic operation per warp each, the count only where it is not zero.
//
// UpdateScales is one block of a thread per matrix: a few hundred numbers, bound by its launch.
//
// Bound by memory: 2 + 1 + 1 bytes an element from 16 bits with both outputs, 24 us for
// [24,576 x 1,024] at the 4.27 TB/s of a copy.

#include "kernels/ops/quantize.h"

#include <cuda_fp8.h>

#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/operations.h"
#include "kernels/ops/scale_rules.h"

namespace bertha {
namespace {

constexpr int kTile = 128;
constexpr int kPart = 8;               // rows and columns of a thread
constexpr int kParts = kTile / kPart;  // of a tile, along either axis
constexpr int kThreads = kParts * kParts;
constexpr uint32_t kNaNBits = 0x7fc00000;
constexpr uint32_t kInfinityBits = 0x7f800000;

struct Pointers {
  const float* scale;   // null without both outputs
  uint8_t* q;           // null: not wanted
  uint8_t* transposed;  // null: not wanted
  uint32_t* amax;
  unsigned long long* saturated;
};

template <__nv_fp8_interpretation_t kFormat>
inline constexpr float kLargest = kFormat == __NV_E4M3 ? 448.0f : 57344.0f;

/// Eight bytes: the fp8 of `values`, the first in the lowest byte.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint2 to_fp8(const float (&values)[kPart]) {
  uint32_t pairs[kPart / 2];
#pragma unroll
  for (int i = 0; i < kPart / 2; ++i) {
    pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(values[2 * i], values[2 * i + 1]),
                                        __NV_SATFINITE, kFormat);
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/// Turns the 4 x 4 bytes of four words: byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(uint32_t& a, uint32_t& b, uint32_t& c,
                                                uint32_t& d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140);
  const uint32_t cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

template <class T, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const T* x, Pointers p, int64_t rows, int64_t columns, int64_t live_rows) {
  __shared__ uint2 tile[kTile * kParts];  // [column][row part ^ column part]
  const int column_part = static_cast<int>(threadIdx.x) % kParts;
  const int row_part = static_cast<int>(threadIdx.x) / kParts;
  const int64_t tile_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t tile_column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_row = tile_row + row_part * kPart;
  const int64_t first_column = tile_column + column_part * kPart;
  const bool has_output = p.q != nullptr || p.transposed != nullptr;
  const float scale = has_output ? *p.scale : 0.0f;
  uint32_t most = 0;
  uint32_t saturated = 0;
  uint2 bytes[kPart] = {};
  if (first_row < rows && first_column < columns) {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const int64_t at = (first_row + i) * columns + first_column;
      float values[kPart];
      load_floats<kPart>(x + at, values);
      const bool is_live = first_row + i < live_rows;
#pragma unroll
      for (int j = 0; j < kPart; ++j) {
        const uint32_t bits = __float_as_uint(fabsf(values[j]));
        values[j] *= scale;
        if (is_live) {
          most = max(most, bits > kInfinityBits ? kNaNBits : bits);
          saturated += fabsf(values[j]) > kLargest<kFormat> ? 1 : 0;
        }
      }
      if (!has_output) continue;
      bytes[i] = to_fp8<kFormat>(values);
      if (p.q != nullptr) *reinterpret_cast<uint2*>(p.q + at) = bytes[i];
    }
  }
  most = __reduce_max_sync(kFullWarp, most);
  saturated = __reduce_add_sync(kFullWarp, saturated);
  if (threadIdx.x % kWarpThreads == 0) {
    atomicMax(p.amax, most);
    if (saturated > 0) atomicAdd(p.saturated, static_cast<unsigned long long>(saturated));
  }
  if (p.transposed == nullptr) return;

  transpose_bytes(bytes[0].x, bytes[1].x, bytes[2].x, bytes[3].x);
  transpose_bytes(bytes[4].x, bytes[5].x, bytes[6].x, bytes[7].x);
  transpose_bytes(bytes[0].y, bytes[1].y, bytes[2].y, bytes[3].y);
  transpose_bytes(bytes[4].y, bytes[5].y, bytes[6].y, bytes[7].y);
  const int swizzled = row_part ^ column_part;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int column = column_part * kPart + j;
    tile[column * kParts + swizzled] = make_uint2(bytes[j].x, bytes[j + 4].x);
    tile[(column + 4) * kParts + swizzled] = make_uint2(bytes[j].y, bytes[j + 4].y);
  }
  __syncthreads();
  // 16 bytes, two row parts, of a column per thread and round; rows are a multiple of 16.
  constexpr int kPairs = kParts / 2;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPairs; i += kThreads) {
    const int column = i / kPairs;
    const int pair = i % kPairs;
    const int64_t row = tile_row + pair * 2 * kPart;
    if (tile_column + column >= columns || row >= rows) continue;
    const int turned = (pair * 2) ^ (column / kPart);
    const uint4 both = *reinterpret_cast<const uint4*>(&tile[column * kParts + (turned & ~1)]);
    const uint4 ordered = turned % 2 == 0 ? both : make_uint4(both.z, both.w, both.x, both.y);
    *reinterpret_cast<uint4*>(p.transposed + (tile_column + column) * rows + row) = ordered;
  }
}

__global__ void update_scales_kernel(float* amax, float* scale, float* inverse_scale,
                                     double* sum_of_squares, int64_t count, DType format) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (gives_scale(amax[i])) {
      const int exponent = scale_exponent(amax[i], format);
      scale[i] = ldexpf(1.0f, exponent);
      inverse_scale[i] = ldexpf(1.0f, -exponent);
    } else if (amax[i] != 0.0f && sum_of_squares != nullptr) {
      *sum_of_squares = __longlong_as_double(0x7ff8000000000000);  // NaN, from any thread
    }
    amax[i] = 0.0f;
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const Quantize& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (rows == 0 || columns == 0) return;
  BERTHA_CHECK(rows % 16 == 0 && columns % 16 == 0, Quantize::kName, ": x is ", args.x.shape_text(),
               ", want multiples of 16");
  for (const View* view : {&args.x, &args.q, &args.transposed}) {
    BERTHA_CHECK(reinterpret_cast<uintptr_t>(view->data) % 16 == 0, Quantize::kName, ": a view ",
                 view->shape_text(), " is not 16-byte aligned");
  }
  const Pointers p{.scale = elements<float>(args.scale),
                   .q = static_cast<uint8_t*>(args.q.data),
                   .transposed = static_cast<uint8_t*>(args.transposed.data),
                   .amax = static_cast<uint32_t*>(args.amax.data),
                   .saturated = static_cast<unsigned long long*>(args.saturated.data)};
  const dim3 grid(static_cast<unsigned>((columns + kTile - 1) / kTile),
                  static_cast<unsigned>((rows + kTile - 1) / kTile));
  const DType format = args.q.has_data() ? args.q.dtype : args.transposed.dtype;
  dispatch_io(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto kernel =
        format == DType::kE4M3 ? quantize_kernel<T, __NV_E4M3> : quantize_kernel<T, __NV_E5M2>;
    kernel<<<grid, kThreads, 0, context.stream>>>(elements<T>(args.x), p, rows, columns,
                                                  args.live_rows);
  });
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

template <>
void run_cuda(CudaContext& context, const UpdateScales& args) {
  const int64_t count = args.amax.extent(0);
  if (count == 0) return;
  update_scales_kernel<<<1, 1024, 0, context.stream>>>(
      elements<float>(args.amax), elements<float>(args.scale), elements<float>(args.inverse_scale),
      args.sum_of_squares.has_data() ? elements<double>(args.sum_of_squares) : nullptr, count,
      args.format);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
