// Quantize: an io matrix, or a GELU or its gradient, to fp8 in its layout and transposed, in one
// pass.
//
// A block takes a tile of 128 x 128 elements; a thread 8 rows x 8 columns of it, which it reads in
// accesses of 16 bytes, all in flight at once, rounds two at a time (cvt.rn.satfinite), stores by
// rows, and turns into 8 columns of 8 bytes. These go through 16 KiB of shared memory, so that each
// column leaves the block in 128 contiguous bytes. Units of 8 bytes are at (row group XOR column
// group), free of bank conflicts both ways. amax and the count of saturated elements cost a block
// one atomic operation each. Column sums cover the tile; a second kernel adds up the tiles.
//
// Matrices of one launch, which the weights of some layers are, have their tiles one after the
// other: one layer alone has little more than a tile for each place of a block on the GPU.
//
// Bound by memory: 2 + 1 + 1 bytes an element from 16 bits with both outputs (1 more of
// derivatives), 24 us for [24,576 x 1,024] at the 4.27 TB/s of a copy.

#include "kernels/ops/quantize.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/fp8.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/divide.h"
#include "kernels/cuda/gemm/gelu.cuh"
#include "kernels/cuda/gemm/linear_kernels.h"

namespace bertha {
namespace {

constexpr int kTile = 128;
constexpr int kPart = 8;               // rows and columns of a thread
constexpr int kParts = kTile / kPart;  // per tile, along either axis
constexpr int kThreads = kParts * kParts;
constexpr int kWarps = kThreads / kWarpThreads;
static_assert(kPart == kVecSize);

/// One matrix and what becomes of it.
template <class T>
struct Matrix {
  const T* x;
  uint8_t* derivative;  // null = not requested
  Fp8Sink sink;         // q null = not requested; scale null if no output is requested
  uint8_t* transposed;  // null = not requested
  float* partial_sums;  // [row tiles, columns], null = not requested
  int64_t rows;         // as columns a multiple of 16
  int64_t columns;
};

/// Weights of one launch, within the 4 KiB of a kernel's parameters: as many as eight layers have.
constexpr int kMostWeights = 32;

/// Matrices of one launch, whose tiles follow each other. kMost: a power of two.
template <class T, int kMost>
struct Matrices {
  Matrix<T> of[kMost];
  int ends[kMost];  // tiles up to the end of each matrix; beyond the last, all

  /// The matrix that contains a tile.
  __device__ __forceinline__ int matrix_of(int tile) const {
    int matrix = 0;
#pragma unroll
    for (int step = kMost / 2; step > 0; step /= 2) {
      if (tile >= ends[matrix + step - 1]) matrix += step;
    }
    return matrix;
  }
};

/// A tile's place in its matrix, in tiles.
struct TilePlace {
  int64_t row;
  int64_t column;
};

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

/// f(x) of Quantize.
enum class Function : uint8_t { kCopy, kCopyAndSum, kGelu, kGradient };

/// Whether column sums are computed.
constexpr bool sums_columns(Function function) {
  return function == Function::kCopyAndSum || function == Function::kGradient;
}

/// The type to which f(x) is rounded before fp8: f16 for a GELU computed in f16.
template <class T, Function kFunction>
using Value = std::conditional_t<kFunction == Function::kGelu && sizeof(T) == 2, __half, T>;

/// gelu(x), and bytes of its derivative.
template <class T, Activation kActivation>
__device__ __forceinline__ auto gelu_of(const Vec<T, kPart>& x, Vec<uint8_t, kPart>& derivative) {
  float values[kPart];
  if constexpr (sizeof(T) == 2) {
    to_floats(x, values);
    Vec<__half, kPart> halves = to_vec<__half>(values);
    const uint2 bytes = gelu_instruction::apply_gelu<kActivation>(halves.word);
    derivative.word[0] = bytes.x;
    derivative.word[1] = bytes.y;
    return halves;
  } else {
    constexpr bool kErf = kActivation == Activation::kGelu;
#pragma unroll
    for (int j = 0; j < kPart; ++j) {
      const float z = element(x, j);
      values[j] = kErf ? gelu_erf(z) : gelu(z);
      const float exact = kErf ? gelu_erf_derivative(z) : gelu_derivative(z);
      derivative.elem[j] = derivative_byte(exact);
    }
    return to_vec<T>(values);
  }
}

/// x * derivative.
template <class T>
__device__ __forceinline__ Vec<T, kPart> gradient_of(const Vec<T, kPart>& x,
                                                     const Vec<uint8_t, kPart>& derivative) {
  float values[kPart];
#pragma unroll
  for (int j = 0; j < kPart; ++j) {
    const float steps = static_cast<float>(derivative.elem[j] - kDerivativeZero);
    values[j] = element(x, j) * (steps * kDerivativeStep);
  }
  return to_vec<T>(values);
}

/// Rows that a thread loads at once: 128 bytes in flight.
template <class T, Function kFunction>
inline constexpr int kRowsInFlight = kPart * 2 / static_cast<int>(sizeof(T)) /
                                     (kFunction == Function::kGradient ? 2 : 1);

/// A thread's part of the tile: 8 rows of 8 bytes, of which rows go to the sink. V: of f(x).
template <class T, class V, __nv_fp8_interpretation_t kFormat, Function kFunction,
          Activation kActivation>
__device__ __forceinline__ void round_part(const T* x, uint8_t* derivative, const Fp8Sink& sink,
                                           int64_t first_row, int64_t first, int64_t columns,
                                           uint2 (&bytes)[kPart], float (&sums)[kPart],
                                           Fp8Rounding<V, kFormat>& rounding) {
  constexpr bool kGradient = kFunction == Function::kGradient;
  constexpr int kInFlight = kRowsInFlight<T, kFunction>;
  const int live = live_rows_of(sink, first_row, kPart);
#pragma unroll
  for (int begin = 0; begin < kPart; begin += kInFlight) {
    Vec<T, kPart> loaded[kInFlight];
    Vec<uint8_t, kPart> derivatives[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      loaded[i] = load_vec(x + first + (begin + i) * columns);
      if constexpr (kGradient) {
        derivatives[i] = load_vec(derivative + first + (begin + i) * columns);
      }
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int row = begin + i;
      Vec<V, kPart> values[1];
      if constexpr (kFunction == Function::kGelu) {
        values[0] = gelu_of<T, kActivation>(loaded[i], derivatives[i]);
        if (derivative != nullptr) {
          store_vec(derivative + first + row * columns, derivatives[i]);
        }
      } else if constexpr (kGradient) {
        values[0] = gradient_of(loaded[i], derivatives[i]);
      } else {
        values[0] = loaded[i];
      }
      if constexpr (sums_columns(kFunction)) {
#pragma unroll
        for (int j = 0; j < kPart; ++j) sums[j] += element(values[0], j);
      }
      bytes[row] = rounding.round(values[0]);
      rounding.record(values, row < live ? 1 : 0);
      if (sink.q != nullptr) {
        *reinterpret_cast<uint2*>(sink.q + first + row * columns) = bytes[row];
      }
    }
  }
}

/// The tile's bytes by columns, through `tile`, [column][row part ^ column part].
__device__ __forceinline__ void store_transposed(uint2 (&bytes)[kPart], uint2* tile, uint8_t* to,
                                                 const TilePlace& place, int64_t rows,
                                                 int64_t columns) {
  const int column_part = static_cast<int>(threadIdx.x) % kParts;
  const int row_part = static_cast<int>(threadIdx.x) / kParts;
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
  const int64_t tile_row = place.row * kTile;
  const int64_t tile_column = place.column * kTile;
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
    *reinterpret_cast<uint4*>(to + (tile_column + column) * rows + row) = ordered;
  }
}

/// Blocks per SM, 0 = any. With this bound nvcc requests all rows of a thread before it waits for
/// the first; without it, half of them.
template <class T, Function kFunction>
inline constexpr int kBlocksPerSm = kFunction == Function::kCopy && sizeof(T) == 2 ? 4 : 0;

template <class T, __nv_fp8_interpretation_t kFormat, Function kFunction, Activation kActivation,
          int kMost>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T, kFunction>)
    quantize_kernel(const __grid_constant__ Matrices<T, kMost> matrices) {
  __shared__ uint2 tile[kTile * kParts];
  __shared__ Fp8Extremes of_warp[kWarps];
  wait_for_kernel_before();
  begin_next_kernel();
  int index = static_cast<int>(blockIdx.x);
  const int which = matrices.matrix_of(index);
  if (which > 0) index -= matrices.ends[which - 1];
  const Matrix<T>& p = matrices.of[which];
  const int64_t rows = p.rows;
  const int64_t columns = p.columns;
  const int column_tiles = static_cast<int>((columns + kTile - 1) / kTile);
  const TilePlace place{.row = index / column_tiles, .column = index % column_tiles};
  const int column_part = static_cast<int>(threadIdx.x) % kParts;
  const int row_part = static_cast<int>(threadIdx.x) / kParts;
  const int64_t tile_column = place.column * kTile;
  const int64_t first_row = place.row * kTile + row_part * kPart;
  const int64_t first_column = tile_column + column_part * kPart;
  const bool has_output = p.sink.q != nullptr || p.transposed != nullptr;
  uint2 bytes[kPart] = {};
  float sums[kPart] = {};
  using V = Value<T, kFunction>;
  Fp8Rounding<V, kFormat> rounding(has_output ? *p.sink.scale : 0.0f);
  if (first_row < rows && first_column < columns) {
    round_part<T, V, kFormat, kFunction, kActivation>(p.x, p.derivative, p.sink, first_row,
                                                      first_row * columns + first_column, columns,
                                                      bytes, sums, rounding);
  }
  record_block_extremes(rounding.extremes(), of_warp, p.sink);
  if constexpr (sums_columns(kFunction)) {
    __shared__ float sums_of_part[kParts][kTile];
    store_vec(&sums_of_part[row_part][column_part * kPart], to_vec<float>(sums));
    __syncthreads();
    const auto column = static_cast<int>(threadIdx.x);
    if (p.partial_sums != nullptr && column < kTile && tile_column + column < columns) {
      float sum = 0.0f;
#pragma unroll
      for (int part = 0; part < kParts; ++part) sum += sums_of_part[part][column];
      p.partial_sums[place.row * columns + tile_column + column] = sum;
    }
  }
  if (p.transposed != nullptr) {
    store_transposed(bytes, tile, p.transposed, place, rows, columns);
  }
}

/// Transposes a matrix that is fp8 already.
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const uint8_t* x, uint8_t* transposed, int64_t rows, int64_t columns) {
  __shared__ uint2 tile[kTile * kParts];
  wait_for_kernel_before();
  begin_next_kernel();
  const int column_part = static_cast<int>(threadIdx.x) % kParts;
  const int row_part = static_cast<int>(threadIdx.x) / kParts;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile + row_part * kPart;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTile + column_part * kPart;
  uint2 bytes[kPart] = {};
  if (first_row < rows && first_column < columns) {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      bytes[i] =
          __ldg(reinterpret_cast<const uint2*>(x + (first_row + i) * columns + first_column));
    }
  }
  const TilePlace place{.row = blockIdx.y, .column = blockIdx.x};
  store_transposed(bytes, tile, transposed, place, rows, columns);
}

DType format_of(const Quantize& args) {
  return args.q.has_data() ? args.q.dtype : args.transposed.dtype;
}

void check(const Quantize& args) {
  BERTHA_CHECK(args.x.extent(0) % 16 == 0 && args.x.extent(1) % 16 == 0, Quantize::kName, ": x is ",
               args.x.shape_text(), ", want multiples of 16");
  BERTHA_CHECK(is_aligned({args.x.data, args.derivative.data, args.q.data, args.transposed.data}),
               Quantize::kName, ": a matrix of ", args.x.shape_text(), " is not 16-byte aligned");
}

/// `all`: at most kMost, equal except for their sizes.
template <class T, Function kFunction, Activation kActivation, int kMost = 1>
void launch(CudaContext& context, std::span<const Quantize> all, float* partial_sums) {
  Matrices<T, kMost> matrices = {};
  int tiles = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const View& x = all[i].x;
    matrices.of[i] = {.x = elements<T>(x),
                      .derivative = static_cast<uint8_t*>(all[i].derivative.data),
                      .sink = sink_of(all[i]),
                      .transposed = static_cast<uint8_t*>(all[i].transposed.data),
                      .partial_sums = partial_sums,
                      .rows = x.extent(0),
                      .columns = x.extent(1)};
    tiles += static_cast<int>(ceil_div(x.extent(0), kTile) * ceil_div(x.extent(1), kTile));
    matrices.ends[i] = tiles;
  }
  std::fill(matrices.ends + all.size(), std::end(matrices.ends), tiles);
  if (tiles == 0) return;
  const auto kernel = format_of(all[0]) == DType::kE4M3
                          ? quantize_kernel<T, __NV_E4M3, kFunction, kActivation, kMost>
                          : quantize_kernel<T, __NV_E5M2, kFunction, kActivation, kMost>;
  launch_dependent(context.stream, kernel, {tiles, kThreads}, matrices);
}

template <class T>
void choose_function(CudaContext& context, const Quantize& args, float* partial_sums) {
  const std::span one(&args, 1);
  if (args.activation == Activation::kGelu) {
    launch<T, Function::kGelu, Activation::kGelu>(context, one, partial_sums);
  } else if (args.activation == Activation::kGeluTanh) {
    launch<T, Function::kGelu, Activation::kGeluTanh>(context, one, partial_sums);
  } else if (args.derivative.has_data()) {
    launch<T, Function::kGradient, Activation::kNone>(context, one, partial_sums);
  } else if (partial_sums != nullptr) {
    launch<T, Function::kCopyAndSum, Activation::kNone>(context, one, partial_sums);
  } else {
    launch<T, Function::kCopy, Activation::kNone>(context, one, partial_sums);
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const Quantize& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  if (columns == 0) return;
  context.require_fp8(Quantize::kName);
  check(args);
  if (is_fp8(args.x.dtype)) {
    if (rows == 0) return;
    launch_dependent(context.stream, transpose_kernel,
                     {{ceil_div(columns, kTile), ceil_div(rows, kTile)}, kThreads},
                     static_cast<const uint8_t*>(args.x.data),
                     static_cast<uint8_t*>(args.transposed.data), rows, columns);
    return;
  }
  float* const partial_sums = args.column_sums.has_data()
                                  ? static_cast<float*>(context.scratch.take(
                                        column_sum_bytes(ceil_div(rows, kTile), columns, 1)))
                                  : nullptr;
  dispatch_io(args.x.dtype, [&]<class T>(TypeTag<T>) {
    if (rows > 0) choose_function<T>(context, args, partial_sums);
  });
  if (partial_sums != nullptr) {
    add_up_columns(context, partial_sums, ceil_div(rows, kTile), args.accumulate_sums,
                   args.column_sums);
  }
}

template <>
void run_cuda(CudaContext& context, const QuantizeWeights& args) {
  context.require_fp8(QuantizeWeights::kName);
  for (const Quantize& weight : args.weights) check(weight);
  for (std::span rest = args.weights; !rest.empty();) {
    const std::span some = rest.first(std::min<size_t>(rest.size(), kMostWeights));
    rest = rest.subspan(some.size());
    dispatch_io(some[0].x.dtype, [&]<class T>(TypeTag<T>) {
      launch<T, Function::kCopy, Activation::kNone, kMostWeights>(context, some, nullptr);
    });
  }
}

}  // namespace bertha
