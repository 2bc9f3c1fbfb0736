// dx = (dy w) * gelu'(z) and the sums of its columns: [T, N] x [N, K] -> [T, K], [K].
//
// A thread block stays on one SM and on 128 columns of the result, and takes tiles of
// 256 rows from top to bottom. It computes them transposed, dx^T = w^T dy^T, so that a thread has
// two columns of dx only, and their sums are two registers for all tiles.
//
//     warpgroup 0, a thread of each   shared memory                  2 consuming warpgroups
//     warp 0     copies the operands    3 stages of 64 inner           each has 64 of the 128
//                of a stage             indices, 48 KiB each           columns, and of a thread
//     warp 1     brings z               z: 3 units of 64 rows and      128 accumulators and
//                                       64 columns for each half        64 registers of slopes
//     warps 2, 3 take a half of dx      dx: 2 units for each half
//                away
//     barriers   of a stage or unit: full, empty
//
// What a tile costs besides its products, the consumers do while the tensor cores have the next
// ones: after the products of some inner indices, 16 rows of dx of the tile before are added to the
// sums and leave, and gelu' of 16 rows of z takes their place. Behind the last products only the
// accumulators are multiplied by the slopes, which are there, in f16.
//
// Floor     T = 24,576, N = 1,024, K = 4,096: 206 GFLOP, 261 us at 790 TFLOP/s, and 461 MB, 108 us.
// Measured  NVIDIA H200, bf16, that size, us, 2026-11-22; "loop": 350 launches behind 250, at the
//           power limit, where repeated loops differ by up to 5 %
//                                       5 launches   loop         in a step      thousand clocks
//             cublasLt, product alone     282          303 to 306
//             cublasLt, DGELU             341          373 to 402   361, and 55 for the sums
//             this kernel, in pairs       347          362 to 366   330 to 337     448 to 455
//               without gelu' and sums    323          337                         422
//               and without its stores    315          315 to 333                  414
//           Tensor cores alone need 393 thousand clocks; shared memory, which moves 128 bytes in
//           one, needs 442: 80 for the products, 48 for the stages, 16 for z and dx.
//           A whole step of BERT-large: 90.0 and 90.3 ms instead of 92.3 and 92.4, in turn.
//           In turn with a plain product, cublasLt without the sums / this kernel with them:
//             N = 1,024, K = 4,096              N = 768, K = 3,072
//             24,577   409 / 389                24,576   236 / 220
//             16,384   264 / 253                16,384   168 / 160
//              8,192   135 / 118                 8,192    88 / 90
//              4,096    67 / 64
//           The first table and the last were measured with clusters of two blocks that share dy.
//           In a chain of a copy, this and a plain product, medians of 24: with a plain product 653,
//           DGELU 724, this kernel 698; in clusters of two 707; z not evict-first 704, and 709 in
//           clusters; gelu' in pairs of f16 as below 691 in clusters.
// Tried     in the loop. z and dx of a tile in one piece of 32 KiB, where dx left behind the last
//           products: 385 to 399 (540 thousand clocks). gelu' in pairs of f16, with the tanh of f32:
//           352 to 369 with an error of 2e-3 instead of 5e-4; with the tanh of f16 too inexact. The
//           consumers' products in strict turn: 368; a pair of slopes behind each 16 inner indices:
//           368 to 372. Sums by the tensor cores, one instruction for 16: 408, since it waits for
//           the wgmma that run. In the form of gemm_bias_gelu.cu of that day, with three warps for
//           gelu': 473 in a step.

#include "kernels/cuda/gemm/gemm_dgelu_dbias.h"

#include <algorithm>

#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/column_sums.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/gemm_gelu_tile.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"
#include "kernels/cuda/tensor_core/ring.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"
#include "kernels/cuda/tensor_core/wgmma_wide.cuh"

namespace bertha {
namespace gemm_dgelu_dbias {
namespace {

using gemm_bias_gelu::gelu_slopes;
using gemm_bias_gelu::unpacked;

constexpr int kTileRows = kGemmDgeluDbiasTile.rows;
constexpr int kTileColumns = kGemmDgeluDbiasTile.columns;
constexpr int kHalfColumns = kTileColumns / 2;  // of a consumer
constexpr int kInnerBlock = kGemmDgeluDbiasTile.inner_block;
constexpr int kStages = 3;
constexpr int kDyBytes = kTileRows * kInnerBlock * 2;
constexpr int kWeightBytes = kTileColumns * kInnerBlock * 2;

/// Of z and dx comes and goes a unit at a time; a thread has 4 pairs of rows of a piece.
constexpr int kUnitRows = 64;
constexpr int kUnits = kTileRows / kUnitRows;
constexpr int kUnitBytes = kUnitRows * kHalfColumns * 2;
constexpr int kPieceRows = 16;
constexpr int kPieceBytes = kPieceRows * kHalfColumns * 2;
constexpr int kPieces = kTileRows / kPieceRows;
constexpr int kPiecesOfUnit = kUnitRows / kPieceRows;
constexpr int kZUnits = 3;
constexpr int kDxUnits = 2;

constexpr int kThreads = 3 * kWarpgroupThreads;
// A thread block has the registers of its launch, 3 x 168 for a thread of each warpgroup.
constexpr int kConsumerRegisters = 240;
constexpr int kHelperRegisters = 24;

struct alignas(1024) Memory {
  unsigned char dy[kStages][kDyBytes];
  unsigned char weight[kStages][kWeightBytes];
  unsigned char z[2][kZUnits][kUnitBytes];  // of each consumer
  unsigned char dx[2][kDxUnits][kUnitBytes];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t z_full[2][kZUnits];
  uint64_t z_empty[2][kZUnits];
  uint64_t dx_full[2][kDxUnits];
  uint64_t dx_empty[2][kDxUnits];
};

struct Params {
  float* partial;  // [grid.y, columns]
  int columns;
  int inner_blocks;
  int row_tiles;
};

/// The ring of dx has as many uses in a tile as makes its place a matter of the unit alone.
static_assert(kUnits == 2 * kDxUnits);
__device__ __forceinline__ constexpr int dx_place(int unit) { return unit % kDxUnits; }
__device__ __forceinline__ constexpr uint32_t dx_parity(int unit) {
  return static_cast<uint32_t>(unit / kDxUnits);
}

__device__ __forceinline__ int first_column() {
  return static_cast<int>(blockIdx.x) * kTileColumns;
}

/// Calls work(tile) for the tiles of this block.
template <class Work>
__device__ __forceinline__ void for_each_tile(const Params& params, const Work& work) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.y); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.y)) {
    work(tile);
  }
}

/// Copies the operands of all tiles. One thread.
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& dy,
                                        const CUtensorMap& weight, Memory& shared) {
  RingPlace<kStages> stage;
  for_each_tile(params, [&](int tile) {
    for (int k = 0; k < params.inner_blocks; ++k) {
      const uint32_t full = at(shared.full[stage.index]);
      barrier_wait(at(shared.empty[stage.index]), stage.parity ^ 1);
      barrier_arrive_expecting(full, kDyBytes + kWeightBytes);
      copy_box_async(at(shared.dy[stage.index]), dy, k * kInnerBlock, tile * kTileRows, full);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_box_async(at(shared.weight[stage.index][half * (kWeightBytes / 2)]), weight,
                       first_column() + half * kHalfColumns, k * kInnerBlock, full);
      }
      stage.advance();
    }
  });
}

/// Brings z for both halves. One thread.
__device__ __forceinline__ void bring_z(const Params& params, const CUtensorMap& z,
                                        Memory& shared) {
  RingPlace<kZUnits> place;
  for_each_tile(params, [&](int tile) {
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t full = at(shared.z_full[half][place.index]);
        barrier_wait(at(shared.z_empty[half][place.index]), place.parity ^ 1);
        barrier_arrive_expecting(full, kUnitBytes);
        stream_box_async(at(shared.z[half][place.index]), z, first_column() + half * kHalfColumns,
                         tile * kTileRows + unit * kUnitRows, full);
      }
      place.advance();
    }
  });
}

/// Takes a half of dx away. One thread.
__device__ __forceinline__ void take_dx(const Params& params, const CUtensorMap& dx, int half,
                                        Memory& shared) {
  for_each_tile(params, [&](int tile) {
    for (int unit = 0; unit < kUnits; ++unit) {
      const int place = dx_place(unit);
      barrier_wait(at(shared.dx_full[half][place]), dx_parity(unit));
      store_box_async(dx, first_column() + half * kHalfColumns, tile * kTileRows + unit * kUnitRows,
                      at(shared.dx[half][place]));
      wait_for_stores();
      barrier_arrive(at(shared.dx_empty[half][place]));
    }
  });
}

/// One of 64 columns' consumers: 4 warps with 16 columns each.
template <class T>
struct Consumer {
  const Params& params;
  Memory& shared;
  int half;
  int warp;
  int lane;

  RingPlace<kStages> stage = {};
  RingPlace<kZUnits> z_place = {};
  float total[2] = {};  // of columns lane / 4 and lane / 4 + 8 of the warp

  /// Of a piece this warp has 16 x 16 elements, four matrices; where this lane's row of them is.
  __device__ __forceinline__ uint32_t corner() const {
    const int matrix = lane / 8;
    const int row = matrix / 2 * 8 + lane % 8;
    const int chunk = 2 * warp + matrix % 2;
    return static_cast<uint32_t>(row * kHalfColumns * 2 + (chunk ^ (row % 8)) * 16);
  }

  __device__ __forceinline__ void release(int of) const {
    if (warp == 0 && lane == 0) barrier_arrive(at(shared.empty[of]));
  }

  /// dx of a piece into the sums and to where it is taken away.
  __device__ __forceinline__ void leave(int piece, const uint32_t (&dx)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 rows = unpacked<T>(dx[j]);
      total[j % 2] += rows.x + rows.y;
    }
    const int unit = piece / kPiecesOfUnit;
    const int place = dx_place(unit);
    if (piece % kPiecesOfUnit == 0) {
      barrier_wait(at(shared.dx_empty[half][place]), dx_parity(unit) ^ 1);
    }
    store_transposed(at(shared.dx[half][place][piece % kPiecesOfUnit * kPieceBytes]) + corner(),
                     dx);
    if (piece % kPiecesOfUnit == kPiecesOfUnit - 1) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(at(shared.dx_full[half][place]));
    }
  }

  /// z of a piece.
  __device__ __forceinline__ void come(int piece, uint32_t (&z)[4]) {
    const int place = z_place.index;
    if (piece % kPiecesOfUnit == 0) {
      barrier_wait(at(shared.z_full[half][place]), z_place.parity);
    }
    load_transposed(z, at(shared.z[half][place][piece % kPiecesOfUnit * kPieceBytes]) + corner());
    if (piece % kPiecesOfUnit == kPiecesOfUnit - 1) {
      __syncwarp();
      if (lane == 0) barrier_arrive(at(shared.z_empty[half][place]));
      z_place.advance();
    }
  }

  __device__ __forceinline__ void run() {
    float sum[128];
    uint32_t kept[kPieces][4] = {};  // slopes of a tile; from its last products on, its dx
    bool is_first = true;
    for_each_tile(params, [&](int) {
      int before = 0;  // stage whose products may still run
      int k = 0;
      const auto multiply_until = [&](int end) {
#pragma unroll 1
        for (; k < end; ++k) {
          barrier_wait(at(shared.full[stage.index]), stage.parity);
          const uint64_t weight = wgmma_tile<Inner::kRows>(
              at(shared.weight[stage.index][half * (kWeightBytes / 2)]), 0);
          const uint64_t dy = wgmma_tile<Inner::kColumns>(at(shared.dy[stage.index]), 0);
          wgmma_64x256_block<T, kInnerBlock, Inner::kRows>(sum, weight, dy, k);
          if (k > 0) release(before);
          before = stage.index;
          stage.advance();
        }
      };
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        multiply_until(1 + params.inner_blocks * piece / kPieces);
        uint32_t z[4];
        come(piece, z);
        if (!is_first) leave(piece, kept[piece]);
#pragma unroll
        for (int j = 0; j < 4; ++j) kept[piece][j] = gelu_slopes<T>(z[j]);
      }
      multiply_until(params.inner_blocks);
      wgmma_wait<0>();
      hold_registers(sum);
      release(before);
#pragma unroll
      for (int i = 0; i < 4 * kPieces; ++i) {
        uint32_t& pair = kept[i / 4][i % 4];
        const float2 slope = unpacked<__half>(pair);
        pair = packed<T>(sum[2 * i] * slope.x, sum[2 * i + 1] * slope.y);
      }
      is_first = false;
    });
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) leave(piece, kept[piece]);
    store_sums();
  }

  __device__ __forceinline__ void store_sums() {
    const int column = first_column() + half * kHalfColumns + warp * 16 + lane / 4;
    float* partial = params.partial + static_cast<int64_t>(blockIdx.y) * params.columns + column;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total[i] += __shfl_xor_sync(kFullWarp, total[i], 1);
      total[i] += __shfl_xor_sync(kFullWarp, total[i], 2);
      if (lane % 4 == 0) partial[8 * i] = total[i];
    }
  }
};

/// grid: columns / 128; row tiles side by side.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_dgelu_dbias_kernel(const __grid_constant__ CUtensorMap dy,
                            const __grid_constant__ CUtensorMap weight,
                            const __grid_constant__ CUtensorMap z,
                            const __grid_constant__ CUtensorMap dx,
                            const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Memory& shared = *reinterpret_cast<Memory*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpgroupThreads / kWarpThreads;
    for (int i = 0; i < kStages; ++i) {
      barrier_init(at(shared.full[i]), 1);
      barrier_init(at(shared.empty[i]), 2);
    }
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kZUnits; ++i) {
        barrier_init(at(shared.z_full[half][i]), 1);
        barrier_init(at(shared.z_empty[half][i]), kWarps);
      }
      for (int i = 0; i < kDxUnits; ++i) {
        barrier_init(at(shared.dx_full[half][i]), kWarps);
        barrier_init(at(shared.dx_empty[half][i]), 1);
      }
    }
    fence_barrier_init();
  }
  wait_for_kernel_before();
  begin_next_kernel();
  __syncthreads();

  if (warp < 4) {
    give_registers<kHelperRegisters>();
    if (lane == 0) {
      if (warp == 0) {
        produce(params, dy, weight, shared);
      } else if (warp == 1) {
        bring_z(params, z, shared);
      } else {
        take_dx(params, dx, warp - 2, shared);
      }
    }
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<T>{params, shared, warp / 4 - 1, warp % 4, lane}.run();
  }
}

template <class T>
void launch(CudaContext& context, const LinearBwdData& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t outputs = args.dy.extent(1);
  const int64_t columns = args.weight.extent(1);
  const int tiles = row_tiles(kGemmDgeluDbiasTile, rows);
  const int abreast =
      std::min(tiles, tiles_abreast(kGemmDgeluDbiasTile, columns,
                                    planned_sm_count(context.options, context.sm_count)));
  auto* partial = static_cast<float*>(context.scratch.take(column_sum_bytes(abreast, columns, 1)));
  const Params params{.partial = partial,
                      .columns = static_cast<int>(columns),
                      .inner_blocks = static_cast<int>(outputs / kInnerBlock),
                      .row_tiles = tiles};

  constexpr int kBytes = static_cast<int>(sizeof(Memory));
  allow_shared_bytes(gemm_dgelu_dbias_kernel<T>, kBytes);
  const dim3 blocks(static_cast<unsigned>(columns / kTileColumns), static_cast<unsigned>(abreast));
  const DType dtype = args.dy.dtype;
  launch_dependent(context.stream, gemm_dgelu_dbias_kernel<T>, {blocks, kThreads, kBytes},
                   matrix_tensor_map(dtype, args.dy.data, rows, outputs, kTileRows),
                   matrix_tensor_map(dtype, args.weight.data, outputs, columns, kInnerBlock),
                   matrix_tensor_map(dtype, args.saved.data, rows, columns, kUnitRows),
                   matrix_tensor_map(dtype, args.dx.data, rows, columns, kUnitRows), params);
  if (!args.dbias_below.has_data()) return;
  const ColumnSumTarget<T> target{elements<T>(args.dbias_below),
                                  args.accumulate_dbias == Accumulate::kYes};
  finish_column_sums<T, 1>(context, partial, abreast, columns, {{target}});
}

}  // namespace
}  // namespace gemm_dgelu_dbias

using namespace gemm_dgelu_dbias;

void run_gemm_dgelu_dbias(CudaContext& context, const LinearBwdData& args) {
  dispatch_16bit(args.dy.dtype,
                 [&](auto tag) { launch<typename decltype(tag)::Type>(context, args); });
}

}  // namespace bertha
