#pragma once

#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"
#include "kernels/cuda/norm_softmax/plain_norm.cuh"
#include "kernels/cuda/norm_softmax/row_packs.cuh"

namespace bertha {

// LayerNorm forward of rows of whole octets of 16 bits, up to 1,024 columns: a warp's 32 lanes with
// four octets each. A power of two of lanes shares a row, a thread has its part of one or two; a
// block does its rows and leaves. There is no next row to wait for: so many small loads at once, and
// nothing between the loads and the stores but shuffles, is what a copy does. x takes no place in L1
// and y is the first to leave L2: both together, neither alone, bring up to 5 %
// (kernels/measured/rows.md).

inline constexpr int64_t kMostNarrowColumns = 4 * kVecSize * kWarpThreads;

template <class T, int kLanes, int kPacks, int kRows, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_narrow_forward_kernel(const __grid_constant__ PlainNorm<T> p, int64_t rows, int columns) {
  constexpr int kTeams = kThreads / kLanes;  // of a block, with a row at a time
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t first_row =
      static_cast<int64_t>(blockIdx.x) * (kTeams * kRows) + static_cast<int>(threadIdx.x) / kLanes;
  const auto row = [&](int r) { return first_row + r * kTeams; };
  const auto column = [&](int k) { return (k * kLanes + lane) * kVecSize; };
  const auto has = [&](int k) { return column(k) < columns; };

  Vec<T, kVecSize> x[kRows][kPacks] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (has(k) && row(r) < rows)
        x[r][k] = load_vec_no_allocate(p.x + row(r) * columns + column(k));
    }
  }
  const float ones[kVecSize] = {1, 1, 1, 1, 1, 1, 1, 1};
  Vec<T, kVecSize> gamma[kPacks];
  Vec<T, kVecSize> beta[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    gamma[k] = to_vec<T>(ones);
    beta[k] = {};
    if (has(k) && p.gamma != nullptr) gamma[k] = load_vec(p.gamma + column(k));
    if (has(k) && p.beta != nullptr) beta[k] = load_vec(p.beta + column(k));
  }

  const float per_column = 1.0f / static_cast<float>(columns);
  float pivot[kRows];
  float sums[2 * kRows] = {};  // of differences to it, and of their squares
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    // Around the row's first element: a large mean then costs nothing, as in held_norm.cuh.
    pivot[r] = __shfl_sync(kFullWarp, element(x[r][0], 0), 0, kLanes);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float difference = element(x[r][k], i) - pivot[r];
        sums[2 * r] += difference;
        sums[2 * r + 1] = fmaf(difference, difference, sums[2 * r + 1]);
      }
    }
  }
  reduce_lanes(sums, kLanes, Add());
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (row(r) >= rows) return;
    const PivotedMoments moments =
        pivoted_moments({sums[2 * r], sums[2 * r + 1]}, per_column, p.epsilon);
    if (lane == 0) {
      p.mean[row(r)] = pivot[r] + moments.rest;
      p.rstd[row(r)] = moments.rstd;
    }
    const float shift = moments.shift();
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      float y[kVecSize];
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float normalized = fmaf(element(x[r][k], i) - pivot[r], moments.rstd, shift);
        y[i] = fmaf(normalized, element(gamma[k], i), element(beta[k], i));
      }
      store_vec_streaming(p.y + row(r) * columns + column(k), to_vec<T>(y));
    }
  }
}

template <int kLanes, int kPacks, int kRows, int kThreads, class T>
void launch_narrow_norm(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                        int64_t columns) {
  const unsigned blocks = blocks_for(rows, kThreads / kLanes * kRows, INT32_MAX);
  norm_narrow_forward_kernel<T, kLanes, kPacks, kRows, kThreads>
      <<<blocks, kThreads, 0, context.stream>>>(p, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Rows of whole octets, at most kMostNarrowColumns columns; there is at least one row.
template <class T>
void launch_norm_narrow_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                                int64_t columns) {
  const int64_t octets = columns / kVecSize;
  if (octets <= 4) return launch_narrow_norm<4, 1, 1, 256>(context, p, rows, columns);
  if (octets <= 8) return launch_narrow_norm<8, 1, 2, 128>(context, p, rows, columns);
  if (octets <= 16) return launch_narrow_norm<8, 2, 1, 128>(context, p, rows, columns);
  if (octets <= 32) return launch_narrow_norm<16, 2, 1, 128>(context, p, rows, columns);
  if (octets <= 64) return launch_narrow_norm<32, 2, 1, 128>(context, p, rows, columns);
  launch_narrow_norm<32, 4, 1, 64>(context, p, rows, columns);
}

}  // namespace bertha
