// GEMMs of fp8 with the GELU of a feed-forward block in their epilogue, and its result rounded to
// fp8 in both layouts:
//
//     forward    z = x w^T + bias, y = gelu(z), and gelu'(z) as bytes   [T, K] x [N, K]
//     backward   dx = (dy w) * gelu'(z), and its column sums            the same shapes
//
// Built as gemm_bias_gelu.cu: a persistent grid, a block stays on 256 columns and takes tiles of
// 128 rows, one producer thread, stages of 128 inner indices, two consumer warpgroups of 64 rows,
// and an epilogue that keeps 64 registers of a thread and runs during the wgmma of the next tile.
//
// Rows      go from registers to global memory, 16 bytes a thread: row 2 c + i of n-block 4 p + j
//           of the weights in shared memory is column 64 j + 16 c + 2 p + i (see there).
// Columns   The even rows of each 16 precede the odd ones in shared memory, so that a thread has
//           two adjacent rows: two bytes of a column, which stmatrix transposes as one element of
//           16 bits. Two warps of the producer's group store them by TMA, one for each half.
// Backward  Registers of finished fragments take the bytes of the next tile, then as f16, by which
//           the accumulators are multiplied.
// Bound by  the epilogue and its stores: without them forward takes 184 us instead of 228 at
//           K = 1,024, backward 194 instead of 221.
// Figure    T = 24,576, an H200 at its power limit, us: K = 1,024, N = 4,096 forward 235 (tanh) or
//           234 (exact), backward 224; 768 x 3,072 148 (exact), 145; 512 x 2,048 76.5 (exact), 80.

#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/fp8.cuh"
#include "kernels/cuda/gemm/gelu.cuh"
#include "kernels/cuda/gemm/gemm_gelu_stages.cuh"
#include "kernels/cuda/gemm/linear_kernels.h"
#include "kernels/cuda/tensor_core/mma.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace gemm_gelu_fp8 {
namespace {

using namespace gemm_gelu;

constexpr int kConsumerThreads = 2 * kWarpgroupThreads;
constexpr int kConsumerWarps = kConsumerThreads / kWarpThreads;

/// A thread's part of a tile: 8 fragments of 2 rows and 8 columns. Fragments 2 f and 2 f + 1 are
/// adjacent: 16 columns, 64 from one such pair to the next.
constexpr int kFragments = 8;
constexpr int kRows = 2;
constexpr int kFragmentBytes = kHalfRows * kTileColumns / kFragments;
constexpr int kPairStride = 64;
constexpr int kGroupRows = 16;  // see produce()

constexpr int column_of(int m) { return m / 2 * kPairStride + m % 2 * kVecSize; }

/// Calls work(std::integral_constant<int, m>{}) for every m.
template <class Work, int... m>
__device__ __forceinline__ void for_each(std::integer_sequence<int, m...>, const Work& work) {
  (work(std::integral_constant<int, m>{}), ...);
}

struct alignas(1024) SharedStorage {
  unsigned char x[kStages][kXBytes];
  unsigned char weight[kStages][kWeightBytes];  // at the end: column sums of the consumers' warps
  unsigned char transposed[2][kHalfRows * kTileColumns];
  float bias[kTileColumns];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t transposed_full[2];
  uint64_t transposed_empty[2];
};
static_assert(kConsumerWarps * kTileColumns * sizeof(float) <= sizeof(SharedStorage::weight));

/// The type of x or dy, and of the results.
template <Activation kActivation>
using Operand = std::conditional_t<kActivation == Activation::kNone, __nv_fp8_e5m2, __nv_fp8_e4m3>;

struct Params {
  const float* x_inverse_scale;
  const float* weight_inverse_scale;
  const void* bias = nullptr;  // forward: [columns]
  uint8_t* derivative;         // [rows, columns]  forward: null if not requested
  Fp8Sink sink = {};
  float* partial = nullptr;     // backward: [grid.x, columns]
  bool has_transposed = false;  // whether the transposed result is requested
  bool has_bf16_bias = false;   // forward: otherwise f16
  int64_t rows = 0;             // a multiple of 16
  int64_t columns = 0;
  int inner_blocks = 0;
  int row_tiles = 0;
};

/// Calls work(tile, parity) for the tiles of this block; parity alternates and begins with 0.
template <class Work>
__device__ __forceinline__ void for_each_tile(const Params& params, const Work& work) {
  uint32_t parity = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    work(tile, parity);
    parity ^= 1;
  }
}

/// Stores the transposed results of a half. One thread.
__device__ __forceinline__ void store_transposed(const Params& params, const CUtensorMap& map,
                                                 int half, SharedStorage& shared) {
  const int first_group = static_cast<int>(blockIdx.y) * (kTileColumns / kPairStride);
  for_each_tile(params, [&](int tile, uint32_t parity) {
    mbarrier_wait(at(shared.transposed_full[half]), parity);
    if (params.has_transposed) {
      tma_store_transposed_fragments(map, tile * kTileRows + half * kHalfRows, first_group,
                                     at(shared.transposed[half]));
      bulk_store_wait();
    }
    mbarrier_arrive(at(shared.transposed_empty[half]));
  });
}

/// A power of two as a pair of f16, 0 for other scales. Shuffled to be uniform for the compiler.
__device__ __forceinline__ uint32_t f16_power(float scale) {
  const bool is_power = (__float_as_uint(scale) & 0x7FFFFF) == 0;
  const bool is_f16 = is_power && scale >= 0x1p-24f && scale <= 0x1p15f;
  return __shfl_sync(kFullWarp, is_f16 ? packed<__half>(scale, scale) : 0, 0);
}

/// The warpgroup that multiplies 64 rows of each tile. T: what z or dx is rounded to. kNone:
/// backward, whose derivative is stored. kInner: inner blocks, or 0 for any number.
template <class T, Activation kActivation, int kInner, int kCluster>
struct Consumer {
  static constexpr bool kIsGradient = kActivation == Activation::kNone;
  static constexpr __nv_fp8_interpretation_t kFormat = kIsGradient ? __NV_E5M2 : __NV_E4M3;
  using Fragment = Vec<T, kVecSize>;
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

  const Params& params;
  SharedStorage& shared;
  int half;
  int warp;
  int lane;

  /// For the tile in `kept`: the thread's first elements of the results, how many of its rows are
  /// live, and whether they are inside of the matrix.
  uint8_t* derivative_out = nullptr;
  uint8_t* q_out = nullptr;
  int live_rows = 0;
  bool is_inside = false;
  HalfTileGemm<Operand<kActivation>, __nv_fp8_e4m3, kCluster, SharedStorage, kInner> gemm{
      shared, half, warp, lane};
  Fp8Rounding<T, kFormat, true> rounding{*params.sink.scale};
  const uint32_t scale_pair = f16_power(*params.sink.scale);  // forward
  uint2 even_bytes[kRows];  // of an even fragment, stored with the odd one after it
  uint2 even_derivatives[kRows];
  float column_sums[kFragments] = {};  // sums of column column_of(m) + 16 (lane % 4) + lane / 4
  uint32_t last_parity = 0;            // parity of the tile in `kept`

  __device__ __forceinline__ int own_column() const { return lane % 4 * (2 * kVecSize); }
  __device__ __forceinline__ int inner_blocks() const {
    return kInner > 0 ? kInner : params.inner_blocks;
  }
  /// Inner blocks begun before fragment m of the tile before is finished. Backward finishes early:
  /// its registers take the derivative of this tile, loaded while the other blocks are multiplied.
  __device__ __forceinline__ int begun(int m) const {
    const int rest = !kIsGradient ? 0 : inner_blocks() > 4 ? 2 : 1;
    return 1 + (inner_blocks() - rest) * m / kFragments;
  }

  /// Begins to multiply inner blocks `from` to `to` - 1, constants if kInner is one.
  __device__ __forceinline__ void multiply(int from, int to, float (&sum)[128]) {
    constexpr int kUnrolled = kInner > 0 ? kInner : 1;
#pragma unroll kUnrolled
    for (int k = from; k < to; ++k) gemm.multiply(k, sum);
  }

  /// The sum of a column over the warp's 16 rows. All additions but the last are of pairs, rounded
  /// to T.
  __device__ __forceinline__ float sum_of_column(const Fragment (&rows)[kRows]) const {
    Pair sums[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) sums[i] = pair_of(rows[0], i) + pair_of(rows[1], i);
    share_sums<2>(sums, lane, 16);
    share_sums<1>(sums, lane, 8);
    const float2 own = unpacked<T>(reinterpret_cast<const uint32_t&>(sums[0]));
    const float2 other =
        unpacked<T>(__shfl_xor_sync(kFullWarp, reinterpret_cast<const uint32_t&>(sums[0]), 4));
    return lane & 4 ? own.y + other.y : own.x + other.x;
  }
  static __device__ __forceinline__ Pair pair_of(const Fragment& row, int i) {
    return reinterpret_cast<const Pair&>(row.word[i]);
  }

  /// Rounds f16 in pairs. The product with a power of two is exact, or so small that e4m3 has zero
  /// for it, or an infinity, which saturates too.
  __device__ __forceinline__ uint2 round_pairs(const Fragment& values) const {
    const auto pair = [&](int i) -> uint32_t {
      const __half2 scaled = __hmul2(reinterpret_cast<const __half2&>(values.word[i]),
                                     reinterpret_cast<const __half2&>(scale_pair));
      return __nv_cvt_halfraw2_to_fp8x2(scaled, __NV_SATFINITE, kFormat);
    };
    return make_uint2(pair(0) | pair(1) << 16, pair(2) | pair(3) << 16);
  }

  /// Stores fragment m of the tile before; parity: of that tile.
  __device__ __forceinline__ void finish(int m, const Fragment (&kept)[kRows], uint32_t parity) {
    Fragment values[kRows];
    uint2 derivatives[kRows];
    uint2 bytes[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      values[row] = kept[row];
      if constexpr (!kIsGradient) {
        derivatives[row] = gelu_instruction::apply_gelu<kActivation>(values[row].word);
      }
    }
    if (!kIsGradient && __builtin_expect(scale_pair != 0, 1)) {
      bytes[0] = round_pairs(values[0]);
      bytes[1] = round_pairs(values[1]);
    } else {
      bytes[0] = rounding.round(values[0]);
      bytes[1] = rounding.round(values[1]);
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (m % 2 == 0) {
        even_bytes[row] = bytes[row];
        if constexpr (!kIsGradient) even_derivatives[row] = derivatives[row];
      } else if (is_inside) {
        const int64_t at_row = row * params.columns + m / 2 * kPairStride;
        *reinterpret_cast<uint4*>(q_out + at_row) =
            make_uint4(even_bytes[row].x, even_bytes[row].y, bytes[row].x, bytes[row].y);
        if (!kIsGradient && params.derivative != nullptr) {
          *reinterpret_cast<uint4*>(derivative_out + at_row) =
              make_uint4(even_derivatives[row].x, even_derivatives[row].y, derivatives[row].x,
                         derivatives[row].y);
        }
      }
    }
    write_transposed(m, bytes, parity);
    if constexpr (kIsGradient) column_sums[m] += sum_of_column(values);
    rounding.record(values, live_rows);
  }

  /// Byte 2 g + i of row 32 m + lane (in the order of transposed_fragments_tensor_map) and 16-byte
  /// chunk `warp` is row 2 g + i of the warp's.
  __device__ __forceinline__ void write_transposed(int m, const uint2 (&bytes)[kRows],
                                                   uint32_t parity) const {
    if (m == 0) mbarrier_wait(at(shared.transposed_empty[half]), parity ^ 1);
    const uint32_t of_part[kParts] = {
        __byte_perm(bytes[0].x, bytes[1].x, 0x5140), __byte_perm(bytes[0].x, bytes[1].x, 0x7362),
        __byte_perm(bytes[0].y, bytes[1].y, 0x5140), __byte_perm(bytes[0].y, bytes[1].y, 0x7362)};
    const int chunk = warp ^ (lane / 2 % 4);
    stmatrix_x4_trans(at(shared.transposed[half][m * kFragmentBytes]) +
                          static_cast<uint32_t>(lane * kHalfRows + chunk * 16),
                      of_part);
    if (m == kFragments - 1) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(at(shared.transposed_full[half]));
    }
  }

  __device__ __forceinline__ void run() {
    const float scale = *params.x_inverse_scale * *params.weight_inverse_scale *
                        (kIsGradient ? kDerivativeStep : 1.0f);
    float sum[128];
    // Forward: z of the tile before. Backward: dx of the tile before, then bytes and then f16 of
    // the derivative of this one.
    Fragment kept[kFragments][kRows] = {};
    bool is_first = true;
    const auto derive = [&](int m) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        uint32_t(&word)[kParts] = kept[m][row].word;
        gelu_instruction::derivative_steps(make_uint2(word[0], word[1]), word);
      }
    };
    const int live = live_rows_of(params.sink, 0, static_cast<int>(params.rows));
    for_each_tile(params, [&](int tile, uint32_t parity) {
      const int64_t row =
          static_cast<int64_t>(tile) * kTileRows + half * kHalfRows + warp * 16 + lane / 4 * kRows;
      const int64_t column = static_cast<int64_t>(blockIdx.y) * kTileColumns + own_column();
      // Past the last row accumulators are zero, and so is their product with another row's.
      const uint8_t* derivative_in =
          params.derivative + min(row, params.rows - kRows) * params.columns + column;
      gemm.begin_tile(parity);
      for_each(std::make_integer_sequence<int, kFragments>{}, [&](auto index) {
        constexpr int m = index;
        multiply(m == 0 ? 0 : begun(m - 1), begun(m), sum);
        if (!is_first) finish(m, kept[m], parity ^ 1);
        if constexpr (kIsGradient && m % 2 == 1) {
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            const uint8_t* from = derivative_in + i * params.columns + m / 2 * kPairStride;
            const uint4 bytes = __ldcs(reinterpret_cast<const uint4*>(from));
            *reinterpret_cast<uint2*>(kept[m - 1][i].word) = make_uint2(bytes.x, bytes.y);
            *reinterpret_cast<uint2*>(kept[m][i].word) = make_uint2(bytes.z, bytes.w);
          }
        }
        if constexpr (kIsGradient && m >= 4) derive(m - 4);
      });
      const int before = begun(kFragments - 1);
      const int between = kIsGradient ? min(before + 1, inner_blocks()) : before;
      multiply(before, between, sum);
      if constexpr (kIsGradient) derive(4), derive(5);
      multiply(between, inner_blocks(), sum);
      if constexpr (kIsGradient) derive(6), derive(7);
      gemm.finish_tile(sum);
      keep(sum, scale, kept);
      derivative_out = params.derivative + row * params.columns + column;
      q_out = params.sink.q + row * params.columns + column;
      is_inside = row < params.rows;
      // Forward has GELU(bias) past the last row, which is not a value of the result.
      live_rows = max(min(live - static_cast<int>(row), kRows), 0);
      is_first = false;
      last_parity = parity;
    });
#pragma unroll
    for (int m = 0; m < kFragments; ++m) finish(m, kept[m], last_parity);
    const Fp8Extremes extremes = warp_extremes(rounding.extremes());
    if (lane == 0) record_extremes(extremes, params.sink);
    if constexpr (kIsGradient) store_sums();
  }

  /// Accumulators, scaled, plus bias or times the derivative, rounded, in the order of columns.
  __device__ __forceinline__ void keep(const float (&sum)[128], float scale,
                                       Fragment (&kept)[kFragments][kRows]) const {
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
      float bias[kVecSize] = {};
      if constexpr (!kIsGradient) {
        const float4* of =
            reinterpret_cast<const float4*>(shared.bias + own_column() + column_of(m));
        *reinterpret_cast<float4*>(bias) = of[0];
        *reinterpret_cast<float4*>(bias + 4) = of[1];
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float* block = &sum[4 * (4 * (m % 2 * 4 + part) + m / 2)];
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          uint32_t& pair = kept[m][row].word[part];
          if constexpr (kIsGradient) {
            const float2 derivative = unpacked<__half>(pair);
            pair = packed<T>(block[2 * row] * scale * derivative.x,
                             block[2 * row + 1] * scale * derivative.y);
          } else {
            pair = packed<T>(fmaf(block[2 * row], scale, bias[2 * part]),
                             fmaf(block[2 * row + 1], scale, bias[2 * part + 1]));
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kFragments * kRows; ++i) hold_registers(kept[i / kRows][i % kRows].word);
  }

  /// Adds up the block's warps.
  __device__ __forceinline__ void store_sums() const {
    named_barrier_sync(1, kConsumerThreads);  // the other consumer has read its stages too
    auto* of_warp = reinterpret_cast<float*>(shared.weight);
    const int thread = (half * 4 + warp) * kWarpThreads + lane;
#pragma unroll
    for (int m = 0; m < kFragments; ++m) {
      of_warp[(half * 4 + warp) * kTileColumns + column_of(m) + own_column() + lane / 4] =
          column_sums[m];
    }
    named_barrier_sync(1, kConsumerThreads);
    float total = 0.0f;
#pragma unroll
    for (int other = 0; other < kConsumerWarps; ++other) {
      total += of_warp[other * kTileColumns + thread];
    }
    params.partial[blockIdx.x * params.columns + blockIdx.y * kTileColumns + thread] = total;
  }
};

/// grid: row blocks, in clusters; columns / 256.
template <class T, Activation kActivation, int kInner, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_gelu_fp8_kernel(const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ CUtensorMap weight,
                         const __grid_constant__ CUtensorMap transposed,
                         const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    init_stages<kCluster>(shared);
    for (int half = 0; half < 2; ++half) {
      mbarrier_init(at(shared.transposed_full[half]), kConsumerWarps / 2);
      mbarrier_init(at(shared.transposed_empty[half]), 1);
    }
    fence_mbarrier_init();
  }
  wait_for_kernel_before();
  if constexpr (kActivation != Activation::kNone) {
    params.has_bf16_bias ? load_bias<__nv_bfloat16>(params.bias, shared)
                         : load_bias<__half>(params.bias, shared);
  }
  __syncthreads();
  cluster_barrier();  // mbarriers are initialized before the other block's loads and arrivals

  if (warp < kWarpgroupThreads / kWarpThreads) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    if (lane == 0) {
      if (warp == 0) {
        produce<Operand<kActivation>, kCluster, kGroupRows, kInner>(
            params, weight, shared, [&](uint32_t to, int column, int tile, uint32_t full) {
              tma_load_even_odd_rows(to, x, column, tile * (kTileRows / 16), full);
            });
      } else if (warp > 1) {
        store_transposed(params, transposed, warp - 2, shared);
      }
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<T, kActivation, kInner, kCluster>{params, shared, warp / 4 - 1, warp % 4, lane}.run();
  }
  __syncwarp();
  cluster_barrier();  // its arrivals need the shared memory of this block
}

/// x [T, K], weight [N, K]; the rest of `params` depends on the direction.
template <Activation kActivation>
void run(CudaContext& context, const View& x, const View& weight, const Quantize& result,
         Params params) {
  const int64_t rows = x.extent(0);
  const int64_t inner = x.extent(1);
  const int64_t columns = weight.extent(0);
  const CUtensorMap x_map = even_odd_rows_tensor_map(x.dtype, x.data, rows, inner, kTileRows / 16);
  const CUtensorMap weight_map =
      row_pairs_tensor_map(weight.dtype, weight.data, columns, inner, kGroupRows, kTileColumns);
  params.has_bf16_bias = result.x.dtype == DType::kBF16;
  params.has_transposed = result.transposed.has_data();
  const CUtensorMap transposed_map = transposed_fragments_tensor_map(
      x.dtype, params.has_transposed ? result.transposed.data : result.q.data, columns, rows,
      kTileColumns);
  const RowGrid grid = row_grid(context, kGemmGeluFp8Tile, rows, columns);
  params.rows = rows;
  params.columns = columns;
  params.inner_blocks = static_cast<int>(inner / kInnerBytes);
  params.row_tiles = grid.row_tiles;
  params.sink = sink_of(result);
  if (result.activation == Activation::kNone) {
    params.partial =
        static_cast<float*>(context.scratch.take(column_sum_bytes(grid.row_blocks, columns, 1)));
  }
  const auto launch = [&]<class T>(TypeTag<T>) {
    // Constants for BERT's sizes, N = 4 K, with the clusters that these have on 132 SMs.
    const int known = grid.cluster == (params.inner_blocks == 6 ? 1 : 2) ? params.inner_blocks : 0;
    const auto kernel = known == 8          ? &gemm_gelu_fp8_kernel<T, kActivation, 8, 2>
                        : known == 6        ? &gemm_gelu_fp8_kernel<T, kActivation, 6, 1>
                        : known == 4        ? &gemm_gelu_fp8_kernel<T, kActivation, 4, 2>
                        : grid.cluster == 2 ? &gemm_gelu_fp8_kernel<T, kActivation, 0, 2>
                                            : &gemm_gelu_fp8_kernel<T, kActivation, 0, 1>;
    launch_row_grid<SharedStorage>(context, kernel, grid, columns, x_map, weight_map,
                                   transposed_map, params);
  };
  if constexpr (kActivation == Activation::kNone) {
    dispatch_16bit(result.x.dtype, launch);
  } else {
    launch(TypeTag<__half>{});
  }
  if (!result.column_sums.has_data()) return;
  add_up_columns(context, params.partial, grid.row_blocks, result.accumulate_sums,
                 result.column_sums);
}

}  // namespace
}  // namespace gemm_gelu_fp8

void run_gemm_gelu_fp8(CudaContext& context, const LinearFwdQuantize& args) {
  const LinearFwd& gemm = args.linear;
  dispatch_gelu(args.quantize.activation, [&]<Activation kGelu>(ActivationTag<kGelu>) {
    gemm_gelu_fp8::run<kGelu>(context, gemm.x, gemm.weight, args.quantize,
                              {.x_inverse_scale = elements<float>(gemm.x_inverse_scale),
                               .weight_inverse_scale = elements<float>(gemm.weight_inverse_scale),
                               .bias = gemm.bias.data,
                               .derivative = static_cast<uint8_t*>(args.quantize.derivative.data)});
  });
}

void run_gemm_gelu_fp8(CudaContext& context, const LinearBwdDataQuantize& args) {
  const LinearBwdData& gemm = args.linear;
  gemm_gelu_fp8::run<Activation::kNone>(
      context, gemm.dy, gemm.weight, args.quantize,
      {.x_inverse_scale = elements<float>(gemm.dy_inverse_scale),
       .weight_inverse_scale = elements<float>(gemm.weight_inverse_scale),
       .derivative = static_cast<uint8_t*>(args.quantize.derivative.data)});
}

}  // namespace bertha
