#pragma once

// What gemm_bias_gelu.cu and gemm_gelu_fp8.cu have in common: tiles of 128 rows and 256 columns,
// whose operands pass through stages of shared memory, 128 bytes of the inner index each, and
// blocks of a cluster that load the weights of a stage together.
//
// A SharedStorage has x[kStages][kXBytes], weight[kStages][kWeightBytes], bias[kTileColumns] and
// the mbarriers full[kStages] and empty[kStages]; Params have inner_blocks and row_tiles.
// kCluster: blocks with the same columns and so the same weights, 1 or 2.

#include <algorithm>

#include "kernels/base/cuda/cluster.cuh"
#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/tensor_core/mma.cuh"
#include "kernels/cuda/tensor_core/pipeline_state.cuh"
#include "kernels/cuda/tensor_core/wgmma_wide.cuh"

namespace bertha::gemm_gelu {

constexpr int kTileRows = kGemmBiasGeluTile.rows;
constexpr int kHalfRows = kTileRows / 2;  // per consumer
constexpr int kTileColumns = kGemmBiasGeluTile.columns;
constexpr int kInnerBytes = kGemmBiasGeluTile.inner_block * 2;
constexpr int kStages = 4;
constexpr int kXBytes = kTileRows * kInnerBytes;
constexpr int kWeightBytes = kTileColumns * kInnerBytes;

static_assert(kGemmGeluFp8Tile.rows == kTileRows && kGemmGeluFp8Tile.columns == kTileColumns &&
              kGemmGeluFp8Tile.inner_block == kInnerBytes);

/// Indices of a stage, of operands T.
template <class T>
constexpr int kInnerBlock = kInnerBytes / static_cast<int>(sizeof(T));

constexpr int kThreads = 3 * kWarpgroupThreads;
// A block has the registers of its launch, 168 for each of its threads.
constexpr int kConsumerRegisters = 240;
constexpr int kProducerRegisters = 24;

constexpr int kParts = 4;  // pairs of columns of a fragment

/// Stages in use. A constant number of inner blocks is a multiple of them, so that the stage of
/// each block is a constant too.
template <int kInner>
constexpr int kRing = kInner == 6 ? 3 : kStages;

/// One thread, before its fence_mbarrier_init().
template <int kCluster, class SharedStorage>
__device__ __forceinline__ void init_stages(SharedStorage& shared) {
  for (int stage = 0; stage < kStages; ++stage) {
    mbarrier_init(at(shared.full[stage]), 1);
    mbarrier_init(at(shared.empty[stage]), 2 * kCluster);
  }
}

/// The bias of the block's columns.
template <class T, class SharedStorage>
__device__ __forceinline__ void load_bias(const void* bias, SharedStorage& shared) {
  if (threadIdx.x >= kTileColumns) return;
  shared.bias[threadIdx.x] =
      to_float(static_cast<const T*>(bias)[blockIdx.y * kTileColumns + threadIdx.x]);
}

/// Loads the operands of all tiles. One thread. load_x(to, column, tile, barrier) starts the copy
/// of the rows of a tile. T: of the weights, whose part p has of each kGroupRows rows the pair from
/// 2 p on.
template <class T, int kCluster, int kGroupRows = 8, int kInner = 0, class Params,
          class SharedStorage, class LoadX>
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& weight,
                                        SharedStorage& shared, const LoadX& load_x) {
  constexpr int kPartBytes = 2 * kWeightBytes / kGroupRows;
  constexpr int kOwnParts = kGroupRows / 2 / kCluster;
  constexpr uint16_t kAllRanks = (1 << kCluster) - 1;
  const int first_part = cluster_rank() * kOwnParts;
  const int first_group = static_cast<int>(blockIdx.y) * (kTileColumns / kGroupRows);
  PipelineState<kRing<kInner>> stage;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    for (int k = 0; k < params.inner_blocks; ++k) {
      const uint32_t full = at(shared.full[stage.index]);
      mbarrier_wait(at(shared.empty[stage.index]), stage.parity ^ 1);
      mbarrier_arrive_expect_tx(full, kXBytes + kWeightBytes);
      load_x(at(shared.x[stage.index]), k * kInnerBlock<T>, tile, full);
#pragma unroll
      for (int part = first_part; part < first_part + kOwnParts; ++part) {
        tma_load_row_pairs_multicast(at(shared.weight[stage.index][part * kPartBytes]), weight,
                                     k * kInnerBlock<T>, 2 * part, first_group, full, kAllRanks);
      }
      stage.advance();
    }
  }
}

/// A consumer's GEMM: 64 rows of each tile. X, W: of the operands. kInner: inner blocks, or 0 for
/// any number.
template <class X, class W, int kCluster, class SharedStorage, int kInner = 0>
struct HalfTileGemm {
  SharedStorage& shared;
  int half;
  int warp;
  int lane;
  PipelineState<kRing<kInner>> stage = {};
  int in_flight = 0;  // stage that wgmma may still read
  int k = 0;

  /// parity: 0 and 1 in turn.
  __device__ __forceinline__ void begin_tile(uint32_t parity = 0) {
    if constexpr (kInner > 0) stage = {0, kInner > kRing<kInner> ? 0 : parity};
    in_flight = 0;
    k = 0;
  }
  /// Begins to multiply the stages up to `end`.
  __device__ __forceinline__ void run_until(int end, float (&sum)[128]) {
#pragma unroll 1
    for (; k < end; ++k) multiply(k, sum);
  }
  /// Begins to multiply inner block `block`, the next one.
  __device__ __forceinline__ void multiply(int block, float (&sum)[128]) {
    mbarrier_wait(at(shared.full[stage.index]), stage.parity);
    const uint32_t rows = at(shared.x[stage.index][half * (kXBytes / 2)]);
    const uint64_t x = wgmma_tile<Inner::kColumns>(rows, 0);
    const uint64_t weight = wgmma_tile<Inner::kColumns>(at(shared.weight[stage.index]), 0);
    wgmma_64x256_block<X, W>(sum, x, weight, block);
    if (block > 0) release(in_flight);
    in_flight = stage.index;
    stage.advance();
  }
  /// Waits for the sums of the tile.
  __device__ __forceinline__ void finish_tile(float (&sum)[128]) const {
    wgmma_wait<0>();
    hold_registers(sum);
    release(in_flight);
  }

 private:
  __device__ __forceinline__ void release(int of) const {
    if (warp == 0 && lane < kCluster) mbarrier_arrive_remote(at(shared.empty[of]), lane);
  }
};

/// How the rows are divided over blocks.
struct RowGrid {
  int cluster;
  int row_tiles;   // a multiple of the cluster; those past the last row are empty
  int row_blocks;  // per tile of columns
};

inline RowGrid row_grid(const CudaContext& context, const GeluTile& tile, int64_t rows,
                        int64_t columns) {
  const int most_blocks = blocks_per_column_tile(
      tile, columns, planned_sm_count(chosen_options(context), context.sm_count));
  // Clusters of two in an odd number of blocks would leave SMs idle.
  const int cluster = most_blocks % 2 == 0 ? 2 : 1;
  const int tiles = (row_tiles(tile, rows) + cluster - 1) / cluster * cluster;
  return {cluster, tiles, std::min(most_blocks, tiles)};
}

/// Launches a kernel of clusters of `cluster` blocks: grid.row_blocks; columns / 256.
template <class SharedStorage, class... Parameters, class... Arguments>
void launch_row_grid(const CudaContext& context, void (*kernel)(Parameters...), const RowGrid& grid,
                     int64_t columns, const Arguments&... arguments) {
  launch_dependent(
      context.stream, kernel,
      {{grid.row_blocks, columns / kTileColumns}, kThreads, sizeof(SharedStorage), grid.cluster},
      arguments...);
}

}  // namespace bertha::gemm_gelu
