#pragma once

#include "kernels/base/cuda/compute.cuh"
#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/row_team.cuh"

namespace bertha {

// Sums over the rows of a matrix, in two stages of fixed order: every block keeps the sums of its
// own rows in registers and stores them in scratch; a small second kernel adds up the blocks.

/// The output of a column sum: [columns], or null if it is not requested.
template <class T>
struct ColumnSumTarget {
  T* data;
  bool add;  // adds instead of overwriting
};

template <class T, int kQuantities>
struct ColumnSumTargets {
  ColumnSumTarget<T> of[kQuantities];
};

/// Number: the type of the sums, Compute of the operation's type.
template <class Number = float>
int64_t column_sum_bytes(int64_t blocks, int64_t columns, int quantities) {
  return blocks * columns * quantities * static_cast<int64_t>(sizeof(Number));
}

/// Adds up the block's teams and stores partial[blockIdx.x][quantity][columns]. All threads of the
/// block call it, at its end; sums[q][i] belongs to column thread * 8 + i. `shared` is room for
/// kTeams * kQuantities * columns that no other thread uses any more once all are here.
template <class Shape, int kQuantities>
__device__ __forceinline__ void store_block_sums(const RowTeam<Shape>& team,
                                                 const float (&sums)[kQuantities][kVecSize],
                                                 float* partial, float* shared) {
  if constexpr (Shape::kTeams == 1) {
    if (!team.inside) return;
    float* const to = partial + static_cast<int64_t>(blockIdx.x) * kQuantities * team.columns;
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      store_vec(to + q * team.columns + team.thread * kVecSize, to_vec<float>(sums[q]));
    }
  } else {
    constexpr int kColumns = Shape::kWarps * kWarpColumns;
    constexpr int kVecs = kQuantities * kColumns / 4;  // per team
    __syncthreads();
    float* const own = shared + team.team * kQuantities * kColumns + team.thread * kVecSize;
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      store_vec(own + q * kColumns, to_vec<float>(sums[q]));
    }
    __syncthreads();
    const float4* const from = reinterpret_cast<const float4*>(shared);
    float4* const to =
        reinterpret_cast<float4*>(partial) + static_cast<int64_t>(blockIdx.x) * kVecs;
    for (int vec = static_cast<int>(threadIdx.x); vec < kVecs; vec += Shape::kMostThreads) {
      float4 total = from[vec];
#pragma unroll
      for (int other = 1; other < Shape::kTeams; ++other) {
        const float4 more = from[other * kVecs + vec];
        total.x += more.x;
        total.y += more.y;
        total.z += more.z;
        total.w += more.w;
      }
      to[vec] = total;
    }
  }
}

inline constexpr int kColumnSumLanes = 32;  // threads that share the blocks of one column
inline constexpr int kColumnSumLoads = 8;   // in flight per thread

/// One column per lane of a warp, the blocks distributed over the warps: few loads in sequence.
template <class T, int kQuantities>
__global__ void __launch_bounds__(kColumnSumLanes* kWarpThreads)
    finish_column_sums_kernel(const Compute<T>* partial, int64_t blocks, int64_t columns,
                              ColumnSumTargets<T, kQuantities> targets) {
  __shared__ Compute<T> shared[kColumnSumLanes][kWarpThreads];
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpThreads + lane;
  const int quantity = static_cast<int>(blockIdx.y);
  ColumnSumTarget<T> target = targets.of[0];
#pragma unroll
  for (int q = 1; q < kQuantities; ++q) {
    if (q == quantity) target = targets.of[q];
  }
  const bool is_wanted = warp == 0 && column < columns && target.data != nullptr;
  wait_for_kernel_before();
  const Compute<T> before = is_wanted && target.add ? to_compute(target.data[column]) : 0;
  Compute<T> sum = 0;
  if (column < columns) {
    for (int64_t first = warp; first < blocks; first += kColumnSumLoads * kColumnSumLanes) {
      Compute<T> sums[kColumnSumLoads];
#pragma unroll
      for (int i = 0; i < kColumnSumLoads; ++i) {
        const int64_t block = first + i * kColumnSumLanes;
        sums[i] = block < blocks ? partial[(block * kQuantities + quantity) * columns + column] : 0;
      }
#pragma unroll
      for (int i = 0; i < kColumnSumLoads; ++i) sum += sums[i];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (!is_wanted) return;
#pragma unroll
  for (int other = 1; other < kColumnSumLanes; ++other) sum += shared[other][lane];
  target.data[column] = from_compute<T>(sum + before);
}

/// targets (+)= sums over `blocks` of partial [blocks, kQuantities, columns]; without blocks,
/// zeros.
template <class T, int kQuantities>
void finish_column_sums(const CudaContext& context, const Compute<T>* partial, int64_t blocks,
                        int64_t columns, const ColumnSumTargets<T, kQuantities>& targets) {
  launch_dependent(
      context, finish_column_sums_kernel<T, kQuantities>,
      {{blocks_for(columns, kWarpThreads), kQuantities}, kColumnSumLanes * kWarpThreads}, partial,
      blocks, columns, targets);
}

}  // namespace bertha
