#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/common/block_reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/layernorm_operands.cuh"

namespace bertha {

// LayerNorm backward of rows of any type, width and address that registers hold. A persistent grid,
// in which a thread keeps the same columns of all rows that it sees: gamma and its part of the column
// sums stay in registers, and the next row is loaded while one is worked on. The width chooses who
// shares a row:
//   kLanes    a warp or a power of two of its lanes;
//   kBlocks   a block or a cluster of up to eight, whose warps exchange their sums once per row in
//             distributed shared memory.
// Deterministic: rows are distributed by number, and every order of summation follows from the width
// and the device.
//
// Bound by memory where packs are of 16 bytes, else by instructions: 49,152 x 128 f16 take 22 us on
// an H200, 64 % of a copy of as many bytes (kernels/measured/rows.md).

enum class RowScope : uint8_t { kLanes, kBlocks };

inline constexpr int kLanesThreads = 256;
inline constexpr int kBlocksThreads = 512;
inline constexpr int kMostClusterBlocks = 8;

/// Elements of a row that a thread has.
template <class T>
inline constexpr int kThreadElements = sizeof(T) == 8 ? 4 : 8;

/// The same in blocks: what the registers hold.
template <class T, int N>
inline constexpr int kBlocksElements = sizeof(T) == 2 && N > 1 ? 16 : kThreadElements<T>;

/// Widest rows: those of a cluster.
template <class T, int N>
inline constexpr int64_t kMostRegisterColumns =
    int64_t{kMostClusterBlocks} * kBlocksThreads* kBlocksElements<T, N>;

/// How a kernel is launched.
struct RowGrid {
  unsigned teams;    // that share the rows
  unsigned threads;  // of a block
  int lanes;         // threads of a row, where a block has several
  int cluster;       // blocks of a team, for kBlocks
};

/// The sums of the warps of all blocks of a team; two buffers, so that one barrier per row is enough.
template <class Number>
struct ClusterExchange {
  Number parts[2][2][kMostClusterBlocks][kBlocksThreads / kWarpThreads];
};

/// A barrier of the threads of all blocks of a team.
__device__ __forceinline__ void team_barrier(int blocks) {
  if (blocks == 1) {
    __syncthreads();
  } else {
    cooperative_groups::this_cluster().sync();
  }
}

/// Replaces the sums of a warp's lanes, each the same in all of them, by those of the team.
template <class Number>
__device__ __forceinline__ void team_reduce(Number (&sums)[2], ClusterExchange<Number>& exchange,
                                            int turn, int blocks, int rank) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  auto& parts = exchange.parts[turn % 2];
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    Number* const own = &parts[q][rank][warp];
    if (blocks == 1) {
      if (lane == q) *own = sums[q];
    } else if (lane < blocks) {
      *cooperative_groups::this_cluster().map_shared_rank(own, lane) = sums[q];
    }
  }
  team_barrier(blocks);
  sums[0] = sums[1] = 0;
  for (int i = lane; i < blocks * warps; i += kWarpThreads) {
    sums[0] += parts[0][i / warps][i % warps];
    sums[1] += parts[1][i / warps][i % warps];
  }
  reduce_lanes(sums, kWarpThreads, Add());
}

template <class T, int N, RowScope kScope>
__global__ void __launch_bounds__(kScope == RowScope::kLanes ? kLanesThreads : kBlocksThreads,
                                  kScope == RowScope::kLanes ? 2 : 1)
    layernorm_bwd_registers_kernel(NormBackward<T> p, int64_t rows, int64_t columns, RowGrid grid) {
  using Number = Compute<T>;
  constexpr bool kIsLanes = kScope == RowScope::kLanes;
  constexpr int kElements = kIsLanes ? kThreadElements<T> : kBlocksElements<T, N>;
  constexpr int kPacks = kElements / N;
  using Packs = Vec<T, N>[kPacks];
  __shared__ std::conditional_t<kIsLanes, Number[kElements][kLanesThreads], ClusterExchange<Number>>
      shared;

  // The thread's place among rows and columns.
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = kIsLanes ? grid.lanes : static_cast<int>(blockDim.x);
  const int rank = kIsLanes ? 0 : static_cast<int>(blockIdx.x) % grid.cluster;
  const int team = static_cast<int>(blockIdx.x) / (kIsLanes ? 1 : grid.cluster);
  const int groups = kIsLanes ? kLanesThreads / lanes : 1;  // rows that a team works on at once
  const int group = kIsLanes ? thread / lanes : 0;
  const int begin = (rank * lanes * kPacks + (kIsLanes ? thread % lanes : thread)) * N;
  const int64_t step = static_cast<int64_t>(grid.teams) * groups;
  const auto column_of = [&](int k) { return begin + k * lanes * N; };
  const auto has = [&](int k) { return column_of(k) < columns; };

  struct Incoming {
    Packs dy;
    Packs x;
    Number mean;
    Number rstd;
  };
  const auto load = [&](int64_t row) {
    Incoming in{};
    if (row >= rows) return in;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      in.dy[k] = load_vec<N>(p.dy + row * columns + column_of(k));
      in.x[k] = load_vec<N>(p.x + row * columns + column_of(k));
    }
    in.mean = p.mean[row];
    in.rstd = p.rstd[row];
    return in;
  };
  const int64_t team_first = static_cast<int64_t>(team) * groups;
  Incoming next = load(team_first + group);
  Packs gamma;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) gamma[k].elem[i] = from_compute<T>(Number(1));
    if (p.gamma != nullptr && has(k)) gamma[k] = load_vec<N>(p.gamma + column_of(k));
  }
  const Number per_column = Number(1) / static_cast<Number>(columns);
  if constexpr (!kIsLanes) team_barrier(grid.cluster);  // all run and may be written to

  Number dgamma[kElements] = {};
  Number dbeta[kElements] = {};
  int turn = 0;
  // The same number of turns for all threads of a team.
  for (int64_t first = team_first; first < rows; first += step, ++turn) {
    const int64_t row = first + group;
    Incoming own = next;
    next = load(row + step);
    Number sums[2] = {};  // of g = dy * gamma, and of g * normalized
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number dy = to_compute(own.dy[k].elem[i]);
        const Number normalized = (to_compute(own.x[k].elem[i]) - own.mean) * own.rstd;
        const Number g = dy * to_compute(gamma[k].elem[i]);
        sums[0] += g;
        sums[1] += g * normalized;
        dgamma[k * N + i] += dy * normalized;
        dbeta[k * N + i] += dy;
      }
    }
    reduce_lanes(sums, kIsLanes ? lanes : kWarpThreads, Add());
    if constexpr (!kIsLanes) team_reduce(sums, shared, turn, grid.cluster, rank);
    if (row >= rows) continue;
    sums[0] *= per_column;
    sums[1] *= per_column;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      keep_packed(own.dy[k]);
      keep_packed(own.x[k]);
      keep_packed(gamma[k]);
      Number dx[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = (to_compute(own.x[k].elem[i]) - own.mean) * own.rstd;
        const Number g = to_compute(own.dy[k].elem[i]) * to_compute(gamma[k].elem[i]);
        dx[i] = own.rstd * (g - sums[0] - normalized * sums[1]);
      }
      store_compute(p.dx + row * columns + column_of(k), dx);
    }
  }

  Number* const partial = p.partial + int64_t{2} * team * columns;
  if constexpr (kIsLanes) {
#pragma unroll
    for (int quantity = 0; quantity < 2; ++quantity) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kElements; ++i) shared[i][thread] = quantity == 0 ? dgamma[i] : dbeta[i];
      __syncthreads();
      // A thread for each element of each lane, over the groups.
      const int element = thread / lanes;
      const int64_t column = column_of(element / N) + element % N;
      if (element >= kElements || column >= columns) continue;
      Number total = 0;
      for (int other = 0; other < groups; ++other) {
        total += shared[element][other * lanes + thread % lanes];
      }
      partial[quantity * columns + column] = total;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      Number* const own = partial + column_of(k);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        own[i] = dgamma[k * N + i];
        own[columns + i] = dbeta[k * N + i];
      }
    }
    team_barrier(grid.cluster);  // none exits while its shared memory is written to
  }
}

inline cudaLaunchConfig_t launch_config(const CudaContext& context, const RowGrid& grid,
                                        cudaLaunchAttribute& cluster) {
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(grid.cluster);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.teams * static_cast<unsigned>(grid.cluster));
  config.blockDim = dim3(grid.threads);
  config.stream = context.stream;
  config.attrs = &cluster;
  config.numAttrs = grid.cluster > 1 ? 1 : 0;
  return config;
}

/// There is at least one row, of at most kMostRegisterColumns columns; N as with_pack chooses it.
/// take_partial(teams) allocates as many partial sums.
template <int N, class T, class TakePartial>
void launch_layernorm_bwd_registers(const CudaContext& context, NormBackward<T> p, int64_t rows,
                                    int64_t columns, const TakePartial& take_partial) {
  const bool is_lanes = columns <= kThreadElements<T> * kWarpThreads;
  const auto kernel = is_lanes ? &layernorm_bwd_registers_kernel<T, N, RowScope::kLanes>
                               : &layernorm_bwd_registers_kernel<T, N, RowScope::kBlocks>;
  RowGrid grid{.teams = 1, .threads = kLanesThreads, .lanes = kLanesThreads, .cluster = 1};
  if (is_lanes) {
    grid.lanes = 1;
    while (grid.lanes * kThreadElements<T> < columns) grid.lanes *= 2;
  } else {
    constexpr int kElements = kBlocksElements<T, N>;
    const unsigned cluster = blocks_for(columns, kBlocksThreads * kElements, kMostClusterBlocks);
    grid.cluster = static_cast<int>(cluster);
    grid.threads = kWarpThreads * blocks_for(columns, cluster * kElements * kWarpThreads,
                                             kBlocksThreads / kWarpThreads);
  }
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config = launch_config(context, grid, attribute);
  int resident = 0;  // teams that run at once
  if (grid.cluster == 1) {
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, kernel, static_cast<int>(grid.threads), 0));
    resident *= context.sm_count;
  } else {
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&resident, kernel, &config));
  }
  grid.teams = blocks_for(rows, kLanesThreads / grid.lanes, resident);
  p.partial = take_partial(grid.teams);
  config = launch_config(context, grid, attribute);
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p, rows, columns, grid));
}

}  // namespace bertha
