// z = x w^T + bias and y = gelu(z) in one kernel: [T, K] x [N, K] -> twice [T, N].
//
// A thread block stays on one multiprocessor and on 256 columns of the result, and takes tiles of
// 128 rows from top to bottom. Blocks of a cluster have the same columns; each copies a half of the
// weights of a stage to both.
//
//     warpgroup 0                     shared memory                 2 consuming warpgroups
//     warp 3     copies the operands    3 stages of 64 inner          each has 64 of the 128 rows
//                of a stage             indices, 48 KiB each          and 128 accumulators a thread:
//     warps 0-2  take z out, store it,  z, 128 x 256, 64 KiB          products, bias, rounding, z
//                take GELU, store y     bias                          to shared memory
//     barriers   of a stage: full, empty; of a half of z: computed, taken
//
// What a tile costs besides its products, the three warps do while the next one is computed, 8
// columns a lane. Only from accumulators to shared memory the consumers go themselves; they are as
// far apart as the stages allow, so that the tensor cores have one's products meanwhile.
//
// Floor     T = 24,576, K = 1,024, N = 4,096: 206 GFLOP, 261 us at 790 TFLOP/s, and 461 MB, 108 us.
// Measured  NVIDIA H200, bf16, that size, us, 2026-11-22; "loop": 350 launches behind 250, at the
//           power limit, where repeated loops differ by up to 5 %
//                                          5 launches   loop         in a training step
//             cublasLt, product alone        269         307 to 322
//             cublasLt, GELU_AUX_BIAS        356         403 to 411   384
//             this kernel                    350         355 to 362   338 to 348
//               without a cluster            319         353 to 398
//               without its stores           317         307 to 317
//           A whole step of BERT-large: 93.7 ms instead of 94.3.
//           Loops of 250, cublasLt's best of 8 / this kernel / without a cluster:
//             K = 1,024, N = 4,096                     K = 768, N = 3,072
//             24,577   412 to 427 / 378 to 405 / 367   24,576   241 to 248 / 235 to 243 / 222 to 227
//             16,384   271 / 242 to 249 / 240          16,384   167 to 171 / 157 to 159 / 155
//              8,192   136 / 132 / 125                  8,192    87 / 84 to 86 / 75 to 79
//              4,096    68 to 72 / 61 / 60              4,096    45 / 51 / 40   <- cublasLt's
// Tried     in the loop. With GELU by 2^x and 1 / x, which takes the three warps longer: 384 to 416
//           without a cluster; with stages of 32 inner indices, 6 of them, 396; in a cluster, where a
//           stage was given back with a release to the cluster, which is compiled to a fence of all
//           memory, 439 to 462. With tanh: a stage given back as soon as its own products are
//           complete 375 to 378; so only where the next stage is not there yet 370 to 387; z stored
//           like y 367 to 376; without the GELU's instructions 351 to 361.
//           The data gradient in the same way (w as it is, gelu'(z) put into shared memory ahead by
//           the three warps, column sums of the result in their registers): right, but 473 us in a
//           step, beside 361 + 55 of cublasLt and a pass for the sums. Without the instructions of
//           gelu' 378 to 381 in the loop instead of 472 to 476: the three warps are too slow, and
//           registers are left for no more of them.

#include "kernels/cuda/gelu_product.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gelu_product.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/tensor_core/cluster.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"
#include "kernels/cuda/tensor_core/wgmma_wide.cuh"

namespace bertha {
namespace gelu_product {
namespace {

constexpr int kTileRows = 128;
constexpr int kHalfRows = 64;  // of a consumer
constexpr int kTileColumns = 256;
constexpr int kInnerBlock = 64;
constexpr int kStages = 3;
constexpr int kXBytes = kTileRows * kInnerBlock * 2;
constexpr int kWeightBytes = kTileColumns * kInnerBlock * 2;

constexpr int kThreads = 3 * kWarpgroupThreads;
constexpr int kHelpers = 3;  // warps
// A thread block has the registers of its launch, 3 x 168 for a thread of each warpgroup.
constexpr int kConsumerRegisters = 184;
constexpr int kHelperRegisters = 136;

/// Thread blocks side by side, with the same columns and so the same weights.
constexpr int kCluster = 2;
constexpr uint16_t kAllRanks = (1 << kCluster) - 1;

struct alignas(1024) Memory {
  unsigned char x[kStages][kXBytes];
  unsigned char weight[kStages][kWeightBytes];
  unsigned char z[2][kHalfRows * kTileColumns * 2];  // of each consumer, see z_at()
  float bias[kTileColumns];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t computed[2];  // a consumer has written its half of z
  uint64_t taken[2];     // and may write it again
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

template <class T>
__device__ __forceinline__ uint32_t at(const T& in_shared) {
  return shared_address(&in_shared);
}

/// Where the 16 bytes `chunk` of a row lie in a half of z: rows of 512 bytes, swizzled so that
/// 8 rows of a chunk meet no bank twice.
__device__ __forceinline__ uint32_t z_at(uint32_t half, int row, int chunk) {
  return half + static_cast<uint32_t>(row * kTileColumns * 2 + ((chunk ^ (row % 8)) * 16));
}

/// A stage of the ring, and the phase of its barriers.
struct Place {
  int stage = 0;
  uint32_t parity = 0;  // of "full" in this round; "empty" of the round before has the other

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Copies the operands of all tiles. One thread.
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& x,
                                        const CUtensorMap& weight, Memory& shared) {
  constexpr int kPartRows = kTileColumns / kCluster;  // of the weights, this block's
  constexpr int kPartBytes = kWeightBytes / kCluster;
  const int rank = cluster_rank();
  const int first_row = static_cast<int>(blockIdx.y) * kTileColumns + rank * kPartRows;
  Place place;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    for (int k = 0; k < params.inner_blocks; ++k) {
      const uint32_t full = at(shared.full[place.stage]);
      barrier_wait(at(shared.empty[place.stage]), place.parity ^ 1);
      barrier_arrive_expecting(full, kXBytes + kWeightBytes);
      copy_box_async(at(shared.x[place.stage]), x, k * kInnerBlock, tile * kTileRows, full);
      copy_box_to_cluster(at(shared.weight[place.stage][rank * kPartBytes]), weight,
                          k * kInnerBlock, first_row, full, kAllRanks);
      place.advance();
    }
  }
}

/// A helper's rows of a half are helper, helper + 3 and so on, four of them in a batch for the
/// latencies' sake; of the last batch some are behind the half.
struct HelperRows {
  static constexpr int kBatch = 4;
  static constexpr int kBatches = (kHalfRows + kBatch * kHelpers - 1) / (kBatch * kHelpers);
  int helper;

  __device__ __forceinline__ int row(int batch, int i) const {
    return helper + kHelpers * (batch * kBatch + i);
  }
};

template <class T>
__device__ __forceinline__ void finish(const Params& params, int helper, int lane, Memory& shared) {
  constexpr int kBatch = HelperRows::kBatch;
  const HelperRows rows{helper};
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTileColumns + lane * 8;
  T* z_out = static_cast<T*>(params.z) + column;
  T* y_out = static_cast<T*>(params.y) + column;
  uint32_t parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const uint32_t from = at(shared.z[half]);
      const int64_t first_row = static_cast<int64_t>(tile) * kTileRows + half * kHalfRows;
      barrier_wait(at(shared.computed[half]), parity);
#pragma unroll 1
      for (int batch = 0; batch < HelperRows::kBatches; ++batch) {
        Pairs z[kBatch], y[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {  // behind the half: its last row, for nothing
          z[i] = load_pairs(z_at(from, min(rows.row(batch, i), kHalfRows - 1), lane));
        }
        if (batch == HelperRows::kBatches - 1) {
          __syncwarp();
          if (lane == 0) barrier_arrive(at(shared.taken[half]));
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int pair = 0; pair < 4; ++pair) {
            const float2 value = unpacked<T>(z[i].of[pair]);
            y[i].of[pair] = packed<T>(gelu(value.x), gelu(value.y));
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int row = rows.row(batch, i);
          const int64_t offset = (first_row + row) * params.columns;
          if (row < kHalfRows && first_row + row < params.rows) {
            stream_pairs(z_out + offset, z[i]);
            write_pairs(y_out + offset, y[i]);
          }
        }
      }
    }
    parity ^= 1;
  }
}

/// A consumer's accumulators, with bias and rounded, to its half of z: 16 rows of each warp, 64
/// columns at a time.
template <class T>
__device__ __forceinline__ void store_z(const float (&sum)[128], int half, int warp, int lane,
                                        Memory& shared) {
  constexpr int kTogether = 4;  // times 16 columns, so that loads need not wait for one another
  const int row = warp * 16 + lane % 16;
  const uint32_t z = at(shared.z[half]);
#pragma unroll
  for (int first = 0; first < kTileColumns / 16; first += kTogether) {
    float2 bias[kTogether][2];
#pragma unroll
    for (int i = 0; i < 2 * kTogether; ++i) {
      const float* pair = &shared.bias[first * 16 + i * 8 + lane % 4 * 2];
      bias[i / 2][i % 2] = *reinterpret_cast<const float2*>(pair);
    }
    uint32_t word[kTogether][4];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* two = &sum[8 * (first + i) + 2 * j];
        const float2 added = bias[i][j / 2];
        word[i][j] = packed<T>(two[0] + added.x, two[1] + added.y);
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      store_matrices(z_at(z, row, (first + i) * 2 + lane / 16), word[i]);
    }
  }
}

/// The products of 64 rows. One warpgroup.
template <class T>
__device__ __forceinline__ void multiply(const Params& params, int half, int warp, int lane,
                                         Memory& shared) {
  const auto release = [&](int stage) {
    if (warp == 0 && lane < kCluster) barrier_arrive_at(at(shared.empty[stage]), lane);
  };
  Place place;
  uint32_t parity = 1;  // a fresh half of z may be written
  float sum[128];
  for (int tile = static_cast<int>(blockIdx.x); tile < params.row_tiles;
       tile += static_cast<int>(gridDim.x)) {
    int before = 0;  // stage whose products may still run
#pragma unroll 1
    for (int k = 0; k < params.inner_blocks; ++k) {
      barrier_wait(at(shared.full[place.stage]), place.parity);
      const uint32_t rows = at(shared.x[place.stage][half * (kXBytes / 2)]);
      const uint64_t x = wgmma_tile<Inner::kColumns>(rows, 0);
      const uint64_t weight = wgmma_tile<Inner::kColumns>(at(shared.weight[place.stage]), 0);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kInnerBlock / 16; ++step) {
        wgmma_64x256x16<T>(sum, wgmma_step<Inner::kColumns>(x, step),
                           wgmma_step<Inner::kColumns>(weight, step), k + step);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (k > 0) release(before);
      before = place.stage;
      place.advance();
    }
    wgmma_wait<0>();
    hold_registers(sum);
    release(before);
    barrier_wait(at(shared.taken[half]), parity);
    store_z<T>(sum, half, warp, lane, shared);
    __syncwarp();
    if (lane == 0) barrier_arrive(at(shared.computed[half]));
    parity ^= 1;
  }
}

/// grid: row tiles side by side, in clusters; columns / 256.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gelu_product_kernel(const __grid_constant__ CUtensorMap x,
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
    for (int half = 0; half < 2; ++half) {
      barrier_init(at(shared.computed[half]), kWarpgroupThreads / kWarpThreads);
      barrier_init(at(shared.taken[half]), kHelpers);
    }
    fence_barrier_init();
  }
  if (threadIdx.x < kTileColumns) {
    const T* bias = static_cast<const T*>(params.bias);
    shared.bias[threadIdx.x] = to_float(bias[blockIdx.y * kTileColumns + threadIdx.x]);
  }
  __syncthreads();
  cluster_barrier();  // a neighbour's copies and arrivals find the barriers made

  if (warp < 4) {
    give_registers<kHelperRegisters>();
    if (warp == kHelpers) {
      if (lane == 0) produce(params, x, weight, shared);
    } else {
      finish<T>(params, warp, lane, shared);
    }
  } else {
    take_registers<kConsumerRegisters>();
    multiply<T>(params, warp / 4 - 1, warp % 4, lane, shared);
  }
  __syncwarp();
  cluster_barrier();  // and find this block still there
}

/// Row tiles that work side by side, for result columns in multiples of 256.
int tiles_abreast(const CudaContext& context, int64_t columns) {
  const int chosen = context.options.gemm_multiprocessors;
  const int multiprocessors = chosen > 0 ? chosen : context.multiprocessors;
  const int abreast = static_cast<int>(multiprocessors / (columns / kTileColumns));
  return std::max(abreast / kCluster, 1) * kCluster;
}

template <class T>
void launch(const CudaContext& context, const CUtensorMap& x, const CUtensorMap& weight,
            const Params& params) {
  constexpr int kBytes = static_cast<int>(sizeof(Memory));
  allow_shared_bytes(gelu_product_kernel<T>, kBytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  const int abreast = std::min(tiles_abreast(context, params.columns), params.row_tiles);
  config.gridDim =
      dim3(static_cast<unsigned>(abreast), static_cast<unsigned>(params.columns / kTileColumns));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = context.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, gelu_product_kernel<T>, x, weight, params));
}

int row_tiles_of(int64_t rows) {
  constexpr int64_t kRows = int64_t{kTileRows} * kCluster;
  return static_cast<int>((rows + kRows - 1) / kRows) * kCluster;
}

bool aligned(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % 16 == 0;
}

/// Rounds of tiles from which on this kernel was faster at all shapes above.
constexpr int kLeastRounds = 4;

}  // namespace
}  // namespace gelu_product

using namespace gelu_product;

bool gelu_product_serves(const CudaContext& context, const LinearFwd& args) {
  using Choice = CudaOptions::GeluProducts;
  const Choice choice = context.options.gelu_products;
  const int64_t columns = args.weight.extent(0);
  if (choice == Choice::kLibrary || args.x.dtype == DType::kF32) return false;
  if (args.activation != Activation::kGelu || !args.bias.has_data()) return false;
  if (columns % kTileColumns != 0 || args.x.extent(1) % kInnerBlock != 0) return false;
  if (!aligned({args.x.data, args.weight.data, args.y.data, args.pre_activation.data})) {
    return false;
  }
  return choice == Choice::kOwn ||
         row_tiles_of(args.x.extent(0)) >= kLeastRounds * tiles_abreast(context, columns);
}

void run_gelu_product(CudaContext& context, const LinearFwd& args) {
  const DType dtype = args.x.dtype;
  const int64_t rows = args.x.extent(0);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  const CUtensorMap x = matrix_tensor_map(dtype, args.x.data, rows, inputs, kTileRows);
  const CUtensorMap weight =
      matrix_tensor_map(dtype, args.weight.data, outputs, inputs, kTileColumns / kCluster);
  const Params params{.bias = args.bias.data,
                      .z = args.pre_activation.data,
                      .y = args.y.data,
                      .rows = rows,
                      .columns = outputs,
                      .inner_blocks = static_cast<int>(inputs / kInnerBlock),
                      .row_tiles = row_tiles_of(rows)};
  dispatch_16bit(
      dtype, [&](auto tag) { launch<typename decltype(tag)::Type>(context, x, weight, params); });
}

}  // namespace bertha
