#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/common/compute.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/row_packs.cuh"

namespace bertha {

// LayerNorm in one pass over memory, forward and backward, for rows of which each thread keeps the
// same columns: gamma, beta and its part of the column sums stay in registers. The width chooses who
// shares a row:
//   kLanes    a warp or a power of two of its lanes;
//   kBlocks   a block; backward, whose column sums need registers for all columns, also a cluster
//             of up to eight, whose warps meet once per row in each other's shared memory.
// Rows behind the one at work are on their way meanwhile. Deterministic: rows are dealt out by
// number, and every order of summation follows from the width and the device.
//
// What a row costs beside its elements (two or three sums over a block) is what bounds 16-bit rows
// here: 8 elements of a thread are few for it, 16 better, and registers for more are not there.

enum class RowScope : uint8_t { kLanes, kBlocks };

inline constexpr int kNarrowThreads = 256;
inline constexpr int kWideThreads = 512;
inline constexpr int kMostClusterBlocks = 8;

/// Elements of a row that a thread has.
template <class T>
inline constexpr int kThreadElements = sizeof(T) == 8 ? 4 : 8;

/// How a kernel is launched.
struct RowGrid {
  unsigned teams;    // that share the rows
  unsigned threads;  // of a block
  int lanes;         // threads of a row, where a block has several
  int cluster;       // blocks of a team, for kBlocks
};

/// A thread's place among rows and columns.
template <int N, int kPacks, RowScope kScope>
struct RowPlace {
  static constexpr bool kIsNarrow = kScope == RowScope::kLanes;

  __device__ explicit RowPlace(const RowGrid& grid) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kIsNarrow) {
      rank = 0;
      groups = kNarrowThreads / grid.lanes;
      group = thread / grid.lanes;
      team = blockIdx.x;
      begin = thread % grid.lanes * N;
      stride = grid.lanes * N;
    } else {
      rank = static_cast<int>(blockIdx.x) % grid.cluster;
      groups = 1;
      group = 0;
      team = static_cast<int>(blockIdx.x) / grid.cluster;
      const int threads = static_cast<int>(blockDim.x);
      begin = (rank * threads * kPacks + thread) * N;
      stride = threads * N;
    }
    step = static_cast<int64_t>(grid.teams) * groups;
  }
  __device__ int column_of(int pack) const { return begin + pack * stride; }
  __device__ bool is_first() const { return begin == 0; }

  int rank;    // of the block in its cluster
  int groups;  // rows that a team works on at once
  int group;   // the thread's among them
  int team;
  int begin;     // the first column
  int stride;    // from pack to pack, in columns
  int64_t step;  // from row to row
};

template <class T, int N, int kPacks>
struct PackedRow {
  Vec<T, N> packs[kPacks];

  /// Columns of the thread; beyond the row, zeros.
  template <class Place>
  __device__ void load(const T* from, const Place& place, int64_t columns) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      packs[k] = {};
      if (place.column_of(k) >= columns) continue;
      packs[k] = *reinterpret_cast<const Vec<T, N>*>(from + place.column_of(k));
    }
  }
};

/// gamma or beta of the thread's columns; without data, the same value for each.
template <class Packed, class T, class Place>
__device__ __forceinline__ Packed load_parameters(const T* from, T otherwise, const Place& place,
                                                  int64_t columns) {
  Packed row;
  if (from != nullptr) {
    row.load(from, place, columns);
    return row;
  }
  for (auto& pack : row.packs) {
    for (T& value : pack.elem) value = otherwise;
  }
  return row;
}

/// Where warps leave what they found of a row, those of kBlocks blocks; two turns, so that one
/// barrier per row is enough.
template <class Number, int kQuantities, int kBlocks>
struct RowExchange {
  Number parts[2][kQuantities][kBlocks][kWideThreads / kWarpThreads];
};

/// Waits for the threads of all blocks of a team, in each of which it is called.
__device__ __forceinline__ void team_barrier(int blocks) {
  if (blocks == 1) {
    __syncthreads();
  } else {
    cooperative_groups::this_cluster().sync();
  }
}

/// Leaves the warp's values, the same in all of its lanes, with every block of the team, and waits
/// for everybody's.
template <class Number, int kQuantities, int kBlocks>
__device__ __forceinline__ void exchange_parts(const Number (&values)[kQuantities],
                                               RowExchange<Number, kQuantities, kBlocks>& exchange,
                                               int turn, int blocks, int rank) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
    Number* const own = &exchange.parts[turn % 2][q][rank][warp];
    if (blocks == 1) {
      if (lane == q) *own = values[q];
    } else if (lane < blocks) {
      *cooperative_groups::this_cluster().map_shared_rank(own, lane) = values[q];
    }
  }
  team_barrier(blocks);
}

/// A lane's share of what all warps of the team left: work(rank, warp).
template <class Work>
__device__ __forceinline__ void for_parts(int blocks, const Work& work) {
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  for (int i = static_cast<int>(threadIdx.x) % kWarpThreads; i < blocks * warps;
       i += kWarpThreads) {
    work(i / warps, i % warps);
  }
}

// --- launchers -------------------------------------------------------------------------------

/// Whether the lanes of a warp hold a row.
template <class T>
constexpr bool is_narrow_row(int64_t columns) {
  return columns <= kThreadElements<T> * kWarpThreads;
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

/// Teams that run at once, at most as many as have rows.
template <class Kernel>
unsigned resident_teams(const CudaContext& context, Kernel* kernel, RowGrid grid, int64_t rows) {
  int most = 0;
  if (grid.cluster == 1) {
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &most, kernel, static_cast<int>(grid.threads), 0));
    most *= context.sm_count;
  } else {
    grid.teams = 1;
    cudaLaunchAttribute attribute{};
    const cudaLaunchConfig_t config = launch_config(context, grid, attribute);
    BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&most, kernel, &config));
  }
  return blocks_for(rows, kNarrowThreads / grid.lanes, most);
}

/// Chooses a grid and launches one of two kernels, with pointers(grid). `elements` are those of a
/// thread of the wide one.
template <class T, class Kernel, class Pointers>
void launch_norm_rows(const CudaContext& context, Kernel* narrow, Kernel* wide, int64_t elements,
                      int64_t rows, int64_t columns, const Pointers& pointers) {
  const bool is_narrow = is_narrow_row<T>(columns);
  Kernel* const kernel = is_narrow ? narrow : wide;
  RowGrid grid{.teams = 0, .threads = kNarrowThreads, .lanes = kNarrowThreads, .cluster = 1};
  if (is_narrow) {
    grid.lanes = 1;
    while (grid.lanes * kThreadElements<T> < columns) grid.lanes *= 2;
  } else {
    const unsigned cluster = blocks_for(columns, kWideThreads * elements, kMostClusterBlocks);
    grid.cluster = static_cast<int>(cluster);
    grid.threads = kWarpThreads * blocks_for(columns, cluster * elements * kWarpThreads,
                                             kWideThreads / kWarpThreads);
  }
  grid.teams = resident_teams(context, kernel, grid, rows);
  cudaLaunchAttribute attribute{};
  const cudaLaunchConfig_t config = launch_config(context, grid, attribute);
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, pointers(grid), rows, columns, grid));
}

}  // namespace bertha
