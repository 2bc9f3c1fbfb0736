#pragma once

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pieces/octet.cuh"
#include "kernels/cuda/rows/row_packs.cuh"

namespace bertha {

// LayerNorm forward of rows of whole octets of 16 bits, up to 1,024 columns: a warp's 32 lanes with
// four octets each. A power of two of lanes shares a row, and a thread has its part of a few rows; a
// block does its rows and leaves. There is no next row to wait for: so many small loads at once, and
// nothing between the loads and the stores but shuffles, is what a copy does.

inline constexpr int kNarrowForwardThreads = 128;
inline constexpr int64_t kMostNarrowColumns = 4 * kOctet * kWarpThreads;

template <class T>
struct PlainNorm {
  const T* x;
  const T* gamma;  // null: 1
  const T* beta;   // null: 0
  T* y;
  float* mean;
  float* rstd;
  float epsilon;
};

template <class T, int kLanes, int kPacks, int kRows>
__global__ void __launch_bounds__(kNarrowForwardThreads)
    norm_narrow_forward_kernel(PlainNorm<T> p, int64_t rows, int columns) {
  constexpr int kGroups = kNarrowForwardThreads / kLanes;  // rows of a block side by side
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const auto column = [&](int k) { return (k * kLanes + lane) * kOctet; };
  const auto has = [&](int k) { return column(k) < columns; };
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kGroups * kRows) + group;
  const auto row = [&](int r) { return first + r * kGroups; };
  const auto at = [&](int r, int k) { return row(r) * columns + column(k); };

  Octet<T> x[kRows][kPacks] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (has(k) && row(r) < rows) x[r][k] = load_octet(p.x + at(r, k));
    }
  }
  const float ones[kOctet] = {1, 1, 1, 1, 1, 1, 1, 1};
  Octet<T> gamma[kPacks];
  Octet<T> beta[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    gamma[k] = rounded_octet<T>(ones);
    beta[k] = {};
    if (has(k) && p.gamma != nullptr) gamma[k] = load_octet(p.gamma + column(k));
    if (has(k) && p.beta != nullptr) beta[k] = load_octet(p.beta + column(k));
  }

  const float per_column = 1.0f / static_cast<float>(columns);
  // Around the row's first element: a large mean then costs nothing, as in held_norm.cuh.
  float pivot[kRows];
  float sums[2 * kRows] = {};  // of differences to it, and of their squares
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    pivot[r] = __shfl_sync(kFullWarp, element(x[r][0], 0), 0, kLanes);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float difference = element(x[r][k], i) - pivot[r];
        sums[2 * r] += difference;
        sums[2 * r + 1] = fmaf(difference, difference, sums[2 * r + 1]);
      }
    }
  }
  reduce_lanes(sums, kLanes, Add());
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (row(r) >= rows) continue;
    const float rest = sums[2 * r] * per_column;
    const float variance = fmaf(-sums[2 * r], rest, sums[2 * r + 1]) * per_column;
    const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + p.epsilon);  // NaN stays
    if (lane == 0) {
      p.mean[row(r)] = pivot[r] + rest;
      p.rstd[row(r)] = scale;
    }
    const float shift = -rest * scale;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      float y[kOctet];
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        const float normalized = fmaf(element(x[r][k], i) - pivot[r], scale, shift);
        y[i] = fmaf(normalized, element(gamma[k], i), element(beta[k], i));
      }
      store_octet_once(p.y + at(r, k), rounded_octet<T>(y));
    }
  }
}

/// Rows of whole octets, at most kMostNarrowColumns columns; there is at least one row.
template <class T>
void launch_norm_narrow_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                                int64_t columns) {
  const auto launch = [&](auto lanes, auto packs, auto rows_of_thread) {
    constexpr int kLanes = decltype(lanes)::value;
    constexpr int kRows = decltype(rows_of_thread)::value;
    const unsigned blocks = static_cast<unsigned>(
        blocks_for(rows, kRows * (kNarrowForwardThreads / kLanes), int64_t{1} << 31));
    norm_narrow_forward_kernel<T, kLanes, decltype(packs)::value, kRows>
        <<<blocks, kNarrowForwardThreads, 0, context.stream>>>(p, rows, static_cast<int>(columns));
    BERTHA_CUDA_CHECK(cudaGetLastError());
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, 2> kTwo;
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, 8> kEight;
  constexpr std::integral_constant<int, 16> kSixteen;
  constexpr std::integral_constant<int, 32> kWarp;
  const int64_t octets = columns / kOctet;
  if (octets <= 4) return launch(kFour, kOne, kFour);
  if (octets <= 8) return launch(kEight, kOne, kFour);
  if (octets <= 16) return launch(kSixteen, kOne, kFour);
  if (octets <= 32) return launch(kSixteen, kTwo, kOne);
  if (octets <= 64) return launch(kWarp, kTwo, kOne);
  launch(kWarp, kFour, kOne);
}

}  // namespace bertha
