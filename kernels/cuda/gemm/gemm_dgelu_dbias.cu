// dx = (dy w) * gelu'(z), the derivative in bytes, and the column sums of dx: [T, N] x [N, K] ->
// [T, K], [K].
//
// Persistent grid: a block stays on 128 columns of the result and takes tiles of 256 rows from top
// to bottom. It computes them transposed, dx^T = w^T dy^T, so that a thread has only two columns of
// dx, whose sums are two registers for all tiles.
//
//     producer warpgroup,             shared memory                  2 consumer warpgroups
//     a thread of each
//     warp 0     loads the operands     3 stages of 64 inner           each has 64 of the 128
//                of a stage             indices, 48 KiB each           columns, and of a thread
//     warp 1     loads derivatives      4 units of 64 rows, bytes      128 accumulators and
//                                       dx: 2 units of 64 rows and     64 registers of derivatives
//     warps 2, 3 store a half of dx     64 columns for each half
//     mbarriers  of a stage or unit: full, empty
//
// Epilogue  is spread over the wgmma of the next tile: after the wgmma of some inner indices, 16
//           rows of dx of the tile before are summed and stored, and 16 rows of derivatives take
//           their place in registers, in f16. After the last wgmma of a tile only the accumulators
//           are multiplied by the derivatives.
// Bytes     ldmatrix transposes elements of 16 bits: lane 4 g + c receives columns 2 g and 2 g + 1
//           of its rows, but accumulates columns g and g + 8. Two shuffles exchange them.
// Bound by  shared memory, 128 bytes a clock: 80 for the wgmma, 48 for loading the stages, 12 for
//           derivatives and dx take 430,000 clocks; the tensor cores need 393,000.
// Figure    T = 24,576, N = 1,024, K = 4,096, bf16, one H200: 303 us in a training step, where a
//           plain GEMM of the same size takes 300, and column sums 55 more. Variants:
//           kernels/measured/gemm.md.

#include <algorithm>

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/gemm/gelu.cuh"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/linear_kernels.h"
#include "kernels/cuda/tensor_core/mma.cuh"
#include "kernels/cuda/tensor_core/pipeline_state.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"
#include "kernels/cuda/tensor_core/wgmma_wide.cuh"

namespace bertha {
namespace gemm_dgelu_dbias {
namespace {

constexpr int kTileRows = kGemmDgeluDbiasTile.rows;
constexpr int kTileColumns = kGemmDgeluDbiasTile.columns;
constexpr int kHalfColumns = kTileColumns / 2;  // per consumer
constexpr int kInnerBlock = kGemmDgeluDbiasTile.inner_block;
constexpr int kStages = 3;
constexpr int kDyBytes = kTileRows * kInnerBlock * 2;
constexpr int kWeightBytes = kTileColumns * kInnerBlock * 2;

/// Derivatives, of both halves, are loaded and dx is stored a unit at a time; a thread has 4 pairs
/// of rows of a fragment.
constexpr int kUnitRows = 64;
constexpr int kUnits = kTileRows / kUnitRows;
constexpr int kUnitBytes = kUnitRows * kHalfColumns * 2;
constexpr int kFragmentRows = 16;
constexpr int kFragmentBytes = kFragmentRows * kHalfColumns * 2;
constexpr int kFragments = kTileRows / kFragmentRows;
constexpr int kFragmentsPerUnit = kUnitRows / kFragmentRows;
constexpr int kDerivativeBytes = kUnitRows * kTileColumns;
constexpr int kDxUnits = 2;

constexpr int kThreads = 3 * kWarpgroupThreads;
// A block has the registers of its launch, 168 for each of its threads.
constexpr int kConsumerRegisters = 240;
constexpr int kProducerRegisters = 24;

struct alignas(1024) SharedStorage {
  unsigned char dy[kStages][kDyBytes];
  unsigned char weight[kStages][kWeightBytes];
  unsigned char derivative[kUnits][kDerivativeBytes];
  unsigned char dx[2][kDxUnits][kUnitBytes];  // by consumer
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t derivative_full[kUnits];
  uint64_t derivative_empty[kUnits];
  uint64_t dx_full[2][kDxUnits];
  uint64_t dx_empty[2][kDxUnits];
};

struct Params {
  float* partial;  // [grid.y, columns]
  int columns;
  int inner_blocks;
  int row_tiles;
};

/// A tile uses each place of the dx ring twice, so that place and parity depend on the unit alone.
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

/// Loads the operands of all tiles. One thread.
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& dy,
                                        const CUtensorMap& weight, SharedStorage& shared) {
  PipelineState<kStages> stage;
  for_each_tile(params, [&](int tile) {
    for (int k = 0; k < params.inner_blocks; ++k) {
      const uint32_t full = at(shared.full[stage.index]);
      mbarrier_wait(at(shared.empty[stage.index]), stage.parity ^ 1);
      mbarrier_arrive_expect_tx(full, kDyBytes + kWeightBytes);
      tma_load_2d(at(shared.dy[stage.index]), dy, k * kInnerBlock, tile * kTileRows, full);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tma_load_2d(at(shared.weight[stage.index][half * (kWeightBytes / 2)]), weight,
                    first_column() + half * kHalfColumns, k * kInnerBlock, full);
      }
      stage.advance();
    }
  });
}

/// Loads the derivatives for both halves. One thread.
__device__ __forceinline__ void load_derivatives(const Params& params,
                                                 const CUtensorMap& derivative,
                                                 SharedStorage& shared) {
  PipelineState<kUnits> unit;
  for_each_tile(params, [&](int tile) {
    for (int i = 0; i < kUnits; ++i) {
      const uint32_t full = at(shared.derivative_full[unit.index]);
      mbarrier_wait(at(shared.derivative_empty[unit.index]), unit.parity ^ 1);
      mbarrier_arrive_expect_tx(full, kDerivativeBytes);
      tma_load_2d_evict_first(at(shared.derivative[unit.index]), derivative, first_column(),
                              tile * kTileRows + unit.index * kUnitRows, full);
      unit.advance();
    }
  });
}

/// Stores a half of dx. One thread.
__device__ __forceinline__ void store_dx(const Params& params, const CUtensorMap& dx, int half,
                                         SharedStorage& shared) {
  for_each_tile(params, [&](int tile) {
    for (int unit = 0; unit < kUnits; ++unit) {
      const int place = dx_place(unit);
      mbarrier_wait(at(shared.dx_full[half][place]), dx_parity(unit));
      tma_store_2d(dx, first_column() + half * kHalfColumns, tile * kTileRows + unit * kUnitRows,
                   at(shared.dx[half][place]));
      bulk_store_wait();
      mbarrier_arrive(at(shared.dx_empty[half][place]));
    }
  });
}

/// One of 64 columns' consumers: 4 warps with 16 columns each.
template <class T>
struct Consumer {
  const Params& params;
  SharedStorage& shared;
  int half;
  int warp;
  int lane;

  PipelineState<kStages> stage = {};
  uint32_t tile_parity = 0;
  float total[2] = {};  // sums of columns lane / 4 and lane / 4 + 8 of the warp

  /// Offset of this lane's row in a fragment, of which this warp has 16 x 16 elements, four
  /// matrices.
  __device__ __forceinline__ uint32_t fragment_offset() const {
    const int matrix = lane / 8;
    const int row = matrix / 2 * 8 + lane % 8;
    const int chunk = 2 * warp + matrix % 2;
    return static_cast<uint32_t>(row * kHalfColumns * 2 + (chunk ^ (row % 8)) * 16);
  }

  __device__ __forceinline__ void release(int of) const {
    if (warp == 0 && lane == 0) mbarrier_arrive(at(shared.empty[of]));
  }

  /// Adds dx of a fragment to the sums and writes it to shared memory for store_dx().
  __device__ __forceinline__ void write_dx(int fragment, const uint32_t (&dx)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 rows = unpacked<T>(dx[j]);
      total[j % 2] += rows.x + rows.y;
    }
    const int unit = fragment / kFragmentsPerUnit;
    const int place = dx_place(unit);
    if (fragment % kFragmentsPerUnit == 0) {
      mbarrier_wait(at(shared.dx_empty[half][place]), dx_parity(unit) ^ 1);
    }
    stmatrix_x4_trans(at(shared.dx[half][place][fragment % kFragmentsPerUnit * kFragmentBytes]) +
                          fragment_offset(),
                      dx);
    if (fragment % kFragmentsPerUnit == kFragmentsPerUnit - 1) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(at(shared.dx_full[half][place]));
    }
  }

  /// Bytes of a fragment's derivatives; lane = 4 g + c. x: column g of rows 2 c, 2 c + 1, 2 c + 8
  /// and 2 c + 9; y: column g + 8 of these rows.
  __device__ __forceinline__ uint2 read_derivatives(int fragment) const {
    const int unit = fragment / kFragmentsPerUnit;
    if (fragment % kFragmentsPerUnit == 0) {
      mbarrier_wait(at(shared.derivative_full[unit]), tile_parity);
    }
    const int row = fragment % kFragmentsPerUnit * kFragmentRows + lane % kFragmentRows;
    const int chunk = (4 * half + warp) ^ (row % 8);
    uint32_t rows[2];  // columns 2 g and 2 g + 1 of rows 2 c and 2 c + 1, 2 c + 8 and 2 c + 9
    ldmatrix_x2_trans(
        rows, at(shared.derivative[unit]) + static_cast<uint32_t>(row * kTileColumns + chunk * 16));
    if (fragment % kFragmentsPerUnit == kFragmentsPerUnit - 1) {
      __syncwarp();
      if (lane == 0) mbarrier_arrive(at(shared.derivative_empty[unit]));
    }
    // Lanes below 16 send their even column first, the others their odd one. So each shuffle brings
    // every lane one of its two columns: column g first if g is even, otherwise column g + 8.
    const uint32_t own_first = lane < 16 ? 0x6420 : 0x7531;
    const int from = lane / 8 * 4 + lane % 4 + (lane & 4) * 4;
    const uint32_t first = __shfl_sync(kFullWarp, __byte_perm(rows[0], rows[1], own_first), from);
    const uint32_t second =
        __shfl_sync(kFullWarp, __byte_perm(rows[0], rows[1], own_first ^ 0x1111), from ^ 16);
    return lane & 4 ? make_uint2(second, first) : make_uint2(first, second);
  }

  __device__ __forceinline__ void run() {
    float sum[128];
    uint32_t kept[kFragments][4] = {};  // derivatives of a tile; after its last wgmma, its dx
    bool is_first = true;
    for_each_tile(params, [&](int) {
      int in_flight = 0;  // stage that wgmma may still read
      int k = 0;
      const auto gemm_until = [&](int end) {
#pragma unroll 1
        for (; k < end; ++k) {
          mbarrier_wait(at(shared.full[stage.index]), stage.parity);
          const uint64_t weight = wgmma_tile<Inner::kRows>(
              at(shared.weight[stage.index][half * (kWeightBytes / 2)]), 0);
          const uint64_t dy = wgmma_tile<Inner::kColumns>(at(shared.dy[stage.index]), 0);
          wgmma_64x256_block<T, T, Inner::kRows>(sum, weight, dy, k);
          if (k > 0) release(in_flight);
          in_flight = stage.index;
          stage.advance();
        }
      };
#pragma unroll
      for (int fragment = 0; fragment < kFragments; ++fragment) {
        gemm_until(1 + params.inner_blocks * fragment / kFragments);
        const uint2 bytes = read_derivatives(fragment);
        if (!is_first) write_dx(fragment, kept[fragment]);
        uint32_t derivatives[4];
        gelu_instruction::derivative_pairs(bytes, derivatives);
#pragma unroll
        for (int j = 0; j < 4; ++j) kept[fragment][j % 2 * 2 + j / 2] = derivatives[j];
      }
      tile_parity ^= 1;
      gemm_until(params.inner_blocks);
      wgmma_wait<0>();
      hold_registers(sum);
      release(in_flight);
#pragma unroll
      for (int i = 0; i < 4 * kFragments; ++i) {
        uint32_t& pair = kept[i / 4][i % 4];
        const float2 derivative = unpacked<__half>(pair);
        pair = packed<T>(sum[2 * i] * derivative.x, sum[2 * i + 1] * derivative.y);
      }
      is_first = false;
    });
#pragma unroll
    for (int fragment = 0; fragment < kFragments; ++fragment) write_dx(fragment, kept[fragment]);
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

/// grid: columns / 128; row blocks.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_dgelu_dbias_kernel(const __grid_constant__ CUtensorMap dy,
                            const __grid_constant__ CUtensorMap weight,
                            const __grid_constant__ CUtensorMap derivative,
                            const __grid_constant__ CUtensorMap dx,
                            const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpgroupThreads / kWarpThreads;
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(at(shared.full[i]), 1);
      mbarrier_init(at(shared.empty[i]), 2);
    }
    for (int i = 0; i < kUnits; ++i) {
      mbarrier_init(at(shared.derivative_full[i]), 1);
      mbarrier_init(at(shared.derivative_empty[i]), 2 * kWarps);
    }
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kDxUnits; ++i) {
        mbarrier_init(at(shared.dx_full[half][i]), kWarps);
        mbarrier_init(at(shared.dx_empty[half][i]), 1);
      }
    }
    fence_mbarrier_init();
  }
  wait_for_kernel_before();
  begin_next_kernel();
  __syncthreads();

  if (warp < 4) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    if (lane == 0) {
      if (warp == 0) {
        produce(params, dy, weight, shared);
      } else if (warp == 1) {
        load_derivatives(params, derivative, shared);
      } else {
        store_dx(params, dx, warp - 2, shared);
      }
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<T>{params, shared, warp / 4 - 1, warp % 4, lane}.run();
  }
}

template <class T>
void launch(CudaContext& context, const LinearBwdData& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t outputs = args.dy.extent(1);
  const int64_t columns = args.weight.extent(1);
  const int tiles = row_tiles(kGemmDgeluDbiasTile, rows);
  const int row_blocks = std::min(
      tiles, blocks_per_column_tile(kGemmDgeluDbiasTile, columns,
                                    planned_sm_count(chosen_options(context), context.sm_count)));
  auto* partial =
      static_cast<float*>(context.scratch.take(column_sum_bytes(row_blocks, columns, 1)));
  const Params params{.partial = partial,
                      .columns = static_cast<int>(columns),
                      .inner_blocks = static_cast<int>(outputs / kInnerBlock),
                      .row_tiles = tiles};

  const DType dtype = args.dy.dtype;
  launch_dependent(context.stream, gemm_dgelu_dbias_kernel<T>,
                   {{columns / kTileColumns, row_blocks}, kThreads, sizeof(SharedStorage)},
                   matrix_tensor_map(dtype, args.dy.data, rows, outputs, kTileRows),
                   matrix_tensor_map(dtype, args.weight.data, outputs, columns, kInnerBlock),
                   matrix_tensor_map(DType::kU8, args.derivative.data, rows, columns, kUnitRows),
                   matrix_tensor_map(dtype, args.dx.data, rows, columns, kUnitRows), params);
  if (!args.dbias_below.has_data()) return;
  add_up_columns(context, partial, row_blocks, args.accumulate_dbias, args.dbias_below);
}

}  // namespace
}  // namespace gemm_dgelu_dbias

using namespace gemm_dgelu_dbias;

void run_gemm_dgelu_dbias(CudaContext& context, const LinearBwdData& args) {
  dispatch_16bit(args.dy.dtype, [&]<class T>(TypeTag<T>) { launch<T>(context, args); });
}

}  // namespace bertha
