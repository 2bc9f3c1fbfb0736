// z = x w^T + bias and y = gelu(z) in one kernel: [T, K] x [N, K] -> twice [T, N].
//
// A thread block stays on one SM and on 256 columns of the result, and takes tiles of
// 128 rows from top to bottom. Blocks of a cluster, two or one, have the same columns; each copies
// its part of the weights of a stage to all.
//
//     warpgroup 0                     shared memory                 2 consuming warpgroups
//     one thread copies the           4 stages of 64 inner          each has 64 of the 128 rows
//     operands of a stage             indices, 48 KiB each          and 128 accumulators a thread
//                                     bias
//     barriers   of a stage: full, empty
//
// A finished tile, with bias and rounded, is moved to 64 registers of each thread. From there z is
// stored and GELU taken, piece by piece, while the tensor cores compute the next tile: a consumer
// would otherwise wait for them.
//
// Stores    go from registers to memory, past shared memory, which has nothing left to give: of its
//           128 bytes a clock the products read 80, and copies of operands write 48. For that,
//           neighbouring columns have to meet in one thread. Of each n-block of 8 columns lane c of
//           a quad has 2 c and 2 c + 1 (wgmma.cuh), so the weights' rows lie in shared memory in
//           another order: row 2 c + i of n-block 8 p + m is row 32 m + 8 c + 2 p + i. Then lane c
//           has, out of n-blocks m, 8 + m, 16 + m and 24 + m, columns 32 m + 8 c to 32 m + 8 c + 7:
//           16 bytes, and a quad 64 bytes of a row.
//
// Floor     T = 24,576, K = 1,024, N = 4,096: 206 GFLOP, 261 us at 790 TFLOP/s, and 461 MB, 108 us.
// Measured  NVIDIA H200, bf16, that size, us, 2026-11-22; "loop": 350 launches behind 250, at the
//           power limit, where repeated loops differ by up to 5 %; "chain": behind a copy and
//           before the block's second product, 130 rounds
//                                          5 launches   loop         chain   in a training step
//             cublasLt, product alone        264 to 285   308 to 333
//             cublasLt, GELU_AUX_BIAS        355 to 371   404 to 415   408     384
//             three warps finish (below)     306 to 308   350 to 360   351     345
//             this kernel                    290          327 to 354   337     318 to 321
//               without a cluster            290          339 to 358   336
//               without its stores           298          300
//           Loops of 150 to 1,200, cublasLt's best of 8 / in clusters / without:
//             rows     K = 1,024, N = 4,096                    K = 768, N = 3,072
//             24,576   397 to 411 / 320 to 354 / 332 to 349    252 / 208 to 217 / 191 to 203
//             16,384   270 to 280 / 224 / 228 to 231           176 to 182 / 142 / 133 to 139
//              8,192   144 to 147 / 114 to 119 / 115 to 118    92 / 77 to 84 / 70 to 82
//              4,096   75 to 77 / 62 / 60 to 63                47 / 43 to 45 / 35 to 37
//              2,048   40 / 33 to 35 / 33                      24 / 22 to 25 / 21 to 23
//              1,024   19 to 20 / 17 to 19 / 17 to 19          12 / 15 / 14 to 15
//           Clusters of two leave SMs idle where 256 columns get an odd number of them:
//           12 of 132 at N = 3,072. There blocks are alone.
//           A tile takes 17,650 cycles; its products alone would take 16,384.
//           In the loop the clock falls until the power is there: 1.3 to 1.5 GHz. What is stored
//           costs 25 us for each of z and y, about what a copy of as many bytes takes out of it.
// Tried     Three warps that finish what consumers leave in shared memory (z, 64 KiB, 3 stages; or
//           32 KiB, taken into 88 registers of a lane at once, 4 stages), y and z stored by them:
//           all 350 to 360 in the loop, with or without a cluster, z by the copy engine or not, tanh
//           of pairs of f16 or not, evict-first or not, the last tile by consumers or not. Seven such
//           warps: 128 registers at launch are too few for a product of 256 columns.
//           z and y by the copy engine, 64 columns at a time through 16 KiB of each consumer: 343
//           in the chain, 335 to 339 with z evict-first. Cache hints of this kernel: within 1 %.
//           Clusters of 4 and 8: only 30 and 15 of them fit, the rest takes a second turn, 550.
//           Rows from the end to the beginning, to meet in the L2 cache what the kernel before left
//           there: nothing. Pieces stored sooner, two in each of 8 inner blocks: 359, not 341.

#include "kernels/cuda/gemm/gemm_bias_gelu.h"

#include <algorithm>

#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/gemm_gelu_tile.cuh"
#include "kernels/cuda/tensor_core/cluster.cuh"
#include "kernels/cuda/tensor_core/ring.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"
#include "kernels/cuda/tensor_core/wgmma_wide.cuh"

namespace bertha {
namespace gemm_bias_gelu {
namespace {

constexpr int kTileRows = kGemmBiasGeluTile.rows;
constexpr int kHalfRows = kTileRows / 2;  // of a consumer
constexpr int kTileColumns = kGemmBiasGeluTile.columns;
constexpr int kInnerBlock = kGemmBiasGeluTile.inner_block;
constexpr int kStages = 4;
constexpr int kXBytes = kTileRows * kInnerBlock * 2;
constexpr int kWeightBytes = kTileColumns * kInnerBlock * 2;

constexpr int kThreads = 3 * kWarpgroupThreads;
// A thread block has the registers of its launch, 3 x 168 for a thread of each warpgroup.
constexpr int kConsumerRegisters = 240;
constexpr int kProducerRegisters = 24;

/// n-blocks 8 part to 8 part + 7 of a stage's weights: of each 8 rows the pair from 2 part on.
constexpr int kParts = 4;
constexpr int kPartBytes = kWeightBytes / kParts;

/// What a thread has of a tile: 2 rows, of each 8 pieces of 8 columns.
constexpr int kPieces = 16;
constexpr int kPieceColumns = 8;
constexpr int kPieceStride = 32;  // columns

struct alignas(1024) Memory {
  unsigned char x[kStages][kXBytes];
  unsigned char weight[kStages][kWeightBytes];
  float bias[kTileColumns];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

struct Params {
  const void* bias;  // [columns]
  void* z;           // [rows, columns]
  void* y;           // [rows, columns]
  int64_t rows;
  int64_t columns;
  int inner_blocks;
  int row_tiles;  // a multiple of the cluster; those behind the last row are empty
};

// kCluster: thread blocks side by side, with the same columns and so the same weights, 1 or 2.

/// Copies the operands of all tiles. One thread.
template <int kCluster>
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& x,
                                        const CUtensorMap& weight, Memory& shared) {
  constexpr int kOwnParts = kParts / kCluster;
  constexpr uint16_t kAllRanks = (1 << kCluster) - 1;
  const int first_part = cluster_rank() * kOwnParts;
  const int octet = static_cast<int>(blockIdx.y) * (kTileColumns / 8);
  RingPlace<kStages> place;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    for (int k = 0; k < params.inner_blocks; ++k) {
      const uint32_t full = at(shared.full[place.index]);
      barrier_wait(at(shared.empty[place.index]), place.parity ^ 1);
      barrier_arrive_expecting(full, kXBytes + kWeightBytes);
      copy_box_async(at(shared.x[place.index]), x, k * kInnerBlock, tile * kTileRows, full);
#pragma unroll
      for (int part = first_part; part < first_part + kOwnParts; ++part) {
        copy_pairs_to_cluster(at(shared.weight[place.index][part * kPartBytes]), weight,
                              k * kInnerBlock, 2 * part, octet, full, kAllRanks);
      }
      place.advance();
    }
  }
}

/// A thread's pieces of a finished tile: 2 m of its row, 2 m + 1 of the row 8 further down, both of
/// columns 32 m to 32 m + 7.
template <class T>
struct Leaving {
  Pairs z[kPieces];
  T* z_out;  // of piece 0
  T* y_out;
  int64_t columns;
  int rows = 0;  // from the thread's row to the end of the matrix

  __device__ __forceinline__ void store(int piece) const {
    Pairs y;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 value = unpacked<T>(z[piece].of[pair]);
      y.of[pair] = packed<T>(gelu(value.x), gelu(value.y));
    }
    const int row = piece % 2 * 8;
    const int64_t offset = row * columns + piece / 2 * kPieceStride;
    if (row < rows) {
      stream_pairs(z_out + offset, z[piece]);
      write_pairs(y_out + offset, y);
    }
  }
};

/// Accumulators with bias, rounded, in the order of columns. bias: of the thread's first column.
template <class T>
__device__ __forceinline__ void keep(const float (&sum)[128], const float* bias,
                                     Pairs (&z)[kPieces]) {
#pragma unroll
  for (int m = 0; m < kPieces / 2; ++m) {
    const float4* of = reinterpret_cast<const float4*>(bias + m * kPieceStride);
    const float4 low = of[0];
    const float4 high = of[1];
    const float2 added[kParts] = {
        {low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* block = &sum[4 * (8 * part + m)];
      const float2 more = added[part];
      z[2 * m].of[part] = packed<T>(block[0] + more.x, block[1] + more.y);
      z[2 * m + 1].of[part] = packed<T>(block[2] + more.x, block[3] + more.y);
    }
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) hold_registers(z[piece].of);
}

/// The products of 64 rows of each tile, and what becomes of them. One warpgroup.
template <class T, int kCluster>
__device__ __forceinline__ void multiply(const Params& params, int half, int warp, int lane,
                                         Memory& shared) {
  const auto release = [&](int stage) {
    if (warp == 0 && lane < kCluster) barrier_arrive_at(at(shared.empty[stage]), lane);
  };
  const int own_row = half * kHalfRows + warp * 16 + lane / 4;
  const int own_column = lane % 4 * kPieceColumns;
  RingPlace<kStages> place;
  float sum[128];
  Leaving<T> leaving{};
  leaving.columns = params.columns;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    int before = 0;  // stage whose products may still run
    int k = 0;
    const auto multiply_until = [&](int end) {
#pragma unroll 1
      for (; k < end; ++k) {
        barrier_wait(at(shared.full[place.index]), place.parity);
        const uint32_t rows = at(shared.x[place.index][half * (kXBytes / 2)]);
        const uint64_t x = wgmma_tile<Inner::kColumns>(rows, 0);
        const uint64_t weight = wgmma_tile<Inner::kColumns>(at(shared.weight[place.index]), 0);
        wgmma_64x256_block<T, kInnerBlock>(sum, x, weight, k);
        if (k > 0) release(before);
        before = place.index;
        place.advance();
      }
    };
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      multiply_until(1 + params.inner_blocks * piece / kPieces);
      leaving.store(piece);
    }
    multiply_until(params.inner_blocks);
    wgmma_wait<0>();
    hold_registers(sum);
    release(before);

    keep<T>(sum, shared.bias + own_column, leaving.z);
    const int64_t row = static_cast<int64_t>(tile) * kTileRows + own_row;
    const int64_t offset =
        row * params.columns + static_cast<int64_t>(blockIdx.y) * kTileColumns + own_column;
    leaving.z_out = static_cast<T*>(params.z) + offset;
    leaving.y_out = static_cast<T*>(params.y) + offset;
    leaving.rows = static_cast<int>(params.rows - row);
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) leaving.store(piece);
}

/// grid: row tiles side by side, in clusters; columns / 256.
template <class T, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_bias_gelu_kernel(const __grid_constant__ CUtensorMap x,
                          const __grid_constant__ CUtensorMap weight,
                          const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Memory& shared = *reinterpret_cast<Memory*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(x);
    prefetch_tensor_map(weight);
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(at(shared.full[stage]), 1);
      barrier_init(at(shared.empty[stage]), 2 * kCluster);
    }
    fence_barrier_init();
  }
  wait_for_kernel_before();
  if (threadIdx.x < kTileColumns) {
    const T* bias = static_cast<const T*>(params.bias);
    shared.bias[threadIdx.x] = to_float(bias[blockIdx.y * kTileColumns + threadIdx.x]);
  }
  __syncthreads();
  cluster_barrier();  // a neighbour's copies and arrivals find the barriers made

  if (warp < kWarpgroupThreads / kWarpThreads) {
    give_registers<kProducerRegisters>();
    if (warp == 0 && lane == 0) produce<kCluster>(params, x, weight, shared);
  } else {
    take_registers<kConsumerRegisters>();
    multiply<T, kCluster>(params, warp / 4 - 1, warp % 4, lane, shared);
  }
  __syncwarp();
  cluster_barrier();  // and find this block still there
}

template <class T, int kCluster>
void launch(const CudaContext& context, const CUtensorMap& x, const CUtensorMap& weight,
            int abreast, Params params) {
  constexpr int kBytes = static_cast<int>(sizeof(Memory));
  allow_shared_bytes(gemm_bias_gelu_kernel<T, kCluster>, kBytes);
  params.row_tiles = (params.row_tiles + kCluster - 1) / kCluster * kCluster;
  cudaLaunchAttribute attributes[2] = {dependent_attribute(), {}};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(abreast, params.row_tiles)),
                        static_cast<unsigned>(params.columns / kTileColumns));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  const auto kernel = gemm_bias_gelu_kernel<T, kCluster>;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, x, weight, params));
}

}  // namespace
}  // namespace gemm_bias_gelu

using namespace gemm_bias_gelu;

void run_gemm_bias_gelu(CudaContext& context, const LinearFwd& args) {
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.extent(0);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  const CUtensorMap x = matrix_tensor_map(dtype, args.x.data, rows, inputs, kTileRows);
  const CUtensorMap weight =
      row_pairs_tensor_map(dtype, args.weight.data, outputs, inputs, kTileColumns / 8);
  const Params params{.bias = args.bias.data,
                      .z = args.pre_activation.data,
                      .y = args.y.data,
                      .rows = rows,
                      .columns = outputs,
                      .inner_blocks = static_cast<int>(inputs / kInnerBlock),
                      .row_tiles = row_tiles(kGemmBiasGeluTile, rows)};
  // Pairs of an odd number would leave SMs without a tile.
  const int abreast = tiles_abreast(kGemmBiasGeluTile, outputs,
                                    planned_sm_count(context.options, context.sm_count));
  dispatch_16bit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (abreast % 2 == 0) {
      launch<T, 2>(context, x, weight, abreast, params);
    } else {
      launch<T, 1>(context, x, weight, abreast, params);
    }
  });
}

}  // namespace bertha
