// y = gelu(z) and gelu'(z) in bytes, z = x w^T + bias, in one kernel: [T, K] x [N, K] -> twice
// [T, N].
//
// Persistent grid: a block stays on 256 columns of the result and takes tiles of 128 rows from top
// to bottom. Blocks of a cluster, two or one, have the same columns; each loads its part of the
// weights of a stage into all of them by TMA multicast.
//
//     producer warpgroup              shared memory                 2 consumer warpgroups
//     one thread loads the            4 stages of 64 inner          each has 64 of the 128 rows
//     operands of a stage             indices, 48 KiB each; bias    and 128 accumulators a thread
//     mbarriers  of a stage: full, empty
//
// Epilogue  A finished tile, with bias and rounded to f16, moves to 64 registers of each thread.
//           From there GELU and its derivative are computed in f16 and stored, fragment by
//           fragment, while the wgmma of the next tile run: the consumers would otherwise wait for
//           them.
// Stores    go from registers to global memory and bypass shared memory, whose 128 bytes a clock
//           the wgmma (80) and the loads (48) use up. For that, adjacent columns have to be in one
//           thread. Of each n-block of 8 columns lane c of a quad has 2 c and 2 c + 1 (wgmma.cuh),
//           so the rows of the weights are in shared memory in another order: row 2 c + i of
//           n-block 8 p + m is row 32 m + 8 c + 2 p + i. Lane c then has, out of n-blocks m, 8 + m,
//           16 + m and 24 + m, columns 32 m + 8 c to 32 m + 8 c + 7: 16 bytes of y and 8 of the
//           derivative. A quad has 64 and 32 bytes of a row: whole sectors.
// Bound by  the tensor cores, and in a long loop by the GPU's power limit.
// Figure    T = 24,576, K = 1,024, N = 4,096, bf16, one H200: 312 us in a training step, where a
//           plain GEMM of the same size takes 298 and cuBLASLt's GELU_AUX_BIAS 384. Variants:
//           kernels/measured/gemm.md.

#include "kernels/base/cuda/vec.cuh"
#include "kernels/cuda/gemm/gelu.cuh"
#include "kernels/cuda/gemm/gemm_gelu_stages.cuh"
#include "kernels/cuda/gemm/linear_kernels.h"
#include "kernels/cuda/tensor_core/mma.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace gemm_bias_gelu {
namespace {

using namespace gemm_gelu;

/// A thread's part of a tile: 2 rows with 8 fragments of 8 columns each.
constexpr int kFragments = 16;
constexpr int kFragmentStride = 32;  // columns

struct alignas(1024) SharedStorage {
  unsigned char x[kStages][kXBytes];
  unsigned char weight[kStages][kWeightBytes];
  float bias[kTileColumns];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

struct Params {
  const void* bias;     // [columns]
  void* y;              // [rows, columns]
  uint8_t* derivative;  // [rows, columns]
  int64_t rows;
  int64_t columns;
  int inner_blocks;
  int row_tiles;
};

/// A thread's fragments of a finished tile: 2 m of its row, 2 m + 1 of the row 8 further down, both
/// of columns 32 m to 32 m + 7.
template <class T, Activation kGelu>
struct Epilogue {
  Vec<__half, kVecSize> z[kFragments];
  T* y_out;  // address of fragment 0
  uint8_t* derivative_out;
  int64_t columns;
  int rows = 0;  // from the thread's row to the end of the matrix

  __device__ __forceinline__ void store(int fragment) const {
    Vec<__half, kVecSize> y = z[fragment];
    const uint2 derivatives = gelu_instruction::apply_gelu<kGelu>(y.word);
    if constexpr (!std::is_same_v<T, __half>) {
#pragma unroll
      for (int pair = 0; pair < kParts; ++pair) {
        const float2 value = unpacked<__half>(y.word[pair]);
        y.word[pair] = packed<T>(value.x, value.y);
      }
    }
    const int row = fragment % 2 * 8;
    const int64_t offset = row * columns + fragment / 2 * kFragmentStride;
    if (row < rows) {
      __stcs(reinterpret_cast<uint2*>(derivative_out + offset), derivatives);
      // An intrinsic, because nvcc split the store of a plain uint4 in four.
      __stwb(reinterpret_cast<uint4*>(y_out + offset),
             make_uint4(y.word[0], y.word[1], y.word[2], y.word[3]));
    }
  }
};

/// Accumulators plus bias, rounded, in the order of columns. bias: of the thread's first column.
__device__ __forceinline__ void add_bias(const float (&sum)[128], const float* bias,
                                         Vec<__half, kVecSize> (&z)[kFragments]) {
#pragma unroll
  for (int m = 0; m < kFragments / 2; ++m) {
    const float4* of = reinterpret_cast<const float4*>(bias + m * kFragmentStride);
    const float4 low = of[0];
    const float4 high = of[1];
    const float2 added[kParts] = {
        {low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* block = &sum[4 * (8 * part + m)];
      const float2 more = added[part];
      z[2 * m].word[part] = packed<__half>(block[0] + more.x, block[1] + more.y);
      z[2 * m + 1].word[part] = packed<__half>(block[2] + more.x, block[3] + more.y);
    }
  }
#pragma unroll
  for (int fragment = 0; fragment < kFragments; ++fragment) hold_registers(z[fragment].word);
}

/// A consumer: GEMM and epilogue of 64 rows of each tile. One warpgroup.
template <class T, Activation kGelu, int kCluster>
__device__ __forceinline__ void consume(const Params& params, int half, int warp, int lane,
                                        SharedStorage& shared) {
  const int own_row = half * kHalfRows + warp * 16 + lane / 4;
  const int own_column = lane % 4 * kVecSize;
  HalfTileGemm<T, T, kCluster, SharedStorage> gemm{shared, half, warp, lane};
  float sum[128];
  Epilogue<T, kGelu> epilogue{};
  epilogue.columns = params.columns;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    gemm.begin_tile();
#pragma unroll
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      gemm.run_until(1 + params.inner_blocks * fragment / kFragments, sum);
      epilogue.store(fragment);
    }
    gemm.run_until(params.inner_blocks, sum);
    gemm.finish_tile(sum);

    add_bias(sum, shared.bias + own_column, epilogue.z);
    const int64_t row = static_cast<int64_t>(tile) * kTileRows + own_row;
    const int64_t offset =
        row * params.columns + static_cast<int64_t>(blockIdx.y) * kTileColumns + own_column;
    epilogue.y_out = static_cast<T*>(params.y) + offset;
    epilogue.derivative_out = params.derivative + offset;
    epilogue.rows = static_cast<int>(params.rows - row);
  }
#pragma unroll
  for (int fragment = 0; fragment < kFragments; ++fragment) epilogue.store(fragment);
}

/// grid: row blocks, in clusters; columns / 256.
template <class T, Activation kGelu, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_bias_gelu_kernel(const __grid_constant__ CUtensorMap x,
                          const __grid_constant__ CUtensorMap weight,
                          const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) unsigned char raw[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(x);
    prefetch_tensor_map(weight);
    init_stages<kCluster>(shared);
    fence_mbarrier_init();
  }
  wait_for_kernel_before();
  load_bias<T>(params.bias, shared);
  __syncthreads();
  cluster_barrier();  // mbarriers are initialized before the other block's loads and arrivals

  if (warp < kWarpgroupThreads / kWarpThreads) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    if (warp == 0 && lane == 0) {
      produce<T, kCluster>(params, weight, shared,
                           [&](uint32_t to, int column, int tile, uint32_t full) {
                             tma_load_2d(to, x, column, tile * kTileRows, full);
                           });
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    consume<T, kGelu, kCluster>(params, warp / 4 - 1, warp % 4, lane, shared);
  }
  __syncwarp();
  cluster_barrier();  // its arrivals need the shared memory of this block
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
      row_pairs_tensor_map(dtype, args.weight.data, outputs, inputs, 8, kTileColumns);
  const RowGrid grid = row_grid(context, kGemmBiasGeluTile, rows, outputs);
  const Params params{.bias = args.bias.data,
                      .y = args.y.data,
                      .derivative = static_cast<uint8_t*>(args.derivative.data),
                      .rows = rows,
                      .columns = outputs,
                      .inner_blocks = static_cast<int>(inputs * size_bytes(dtype) / kInnerBytes),
                      .row_tiles = grid.row_tiles};
  dispatch_16bit(dtype, [&]<class T>(TypeTag<T>) {
    dispatch_gelu(args.activation, [&]<Activation kGelu>(ActivationTag<kGelu>) {
      const auto kernel = grid.cluster == 2 ? &gemm_bias_gelu_kernel<T, kGelu, 2>
                                            : &gemm_bias_gelu_kernel<T, kGelu, 1>;
      launch_row_grid<SharedStorage>(context, kernel, grid, outputs, x, weight, params);
    });
  });
}

}  // namespace bertha
