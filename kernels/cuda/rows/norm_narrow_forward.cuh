#pragma once

#include <type_traits>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pieces/octet.cuh"
#include "kernels/cuda/pieces/reduce.cuh"
#include "kernels/cuda/rows/plain_norm.cuh"
#include "kernels/cuda/rows/row_packs.cuh"

namespace bertha {

// LayerNorm forward of rows of whole octets of 16 bits, up to 1,024 columns: a warp's 32 lanes with
// four octets each. A power of two of lanes shares a row, a thread has its part of one; a block does
// its rows and leaves. There is no next row to wait for: so many small loads at once, and nothing
// between the loads and the stores but shuffles, is what a copy does. Parts of four rows in a thread
// were slower wherever one row has them to spare (kernels/measured/rows.md).

inline constexpr int64_t kMostNarrowColumns = 4 * kOctet * kWarpThreads;

template <class T, int kLanes, int kPacks, int kThreads>
__global__ void __launch_bounds__(kThreads)
    norm_narrow_forward_kernel(PlainNorm<T> p, int64_t rows, int columns) {
  constexpr int kRows = kThreads / kLanes;  // of a block
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kLanes;
  const auto column = [&](int k) { return (k * kLanes + lane) * kOctet; };
  const auto has = [&](int k) { return column(k) < columns; };

  Octet<T> x[kPacks] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (has(k) && row < rows) x[k] = load_octet(p.x + row * columns + column(k));
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
  const float pivot = __shfl_sync(kFullWarp, element(x[0], 0), 0, kLanes);
  float sums[2] = {};  // of differences to it, and of their squares
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has(k)) continue;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const float difference = element(x[k], i) - pivot;
      sums[0] += difference;
      sums[1] = fmaf(difference, difference, sums[1]);
    }
  }
  reduce_lanes(sums, kLanes, Add());
  if (row >= rows) return;
  const float rest = sums[0] * per_column;
  const float variance = fmaf(-sums[0], rest, sums[1]) * per_column;
  const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + p.epsilon);  // NaN stays
  if (lane == 0) {
    p.mean[row] = pivot + rest;
    p.rstd[row] = scale;
  }
  const float shift = -rest * scale;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has(k)) continue;
    float y[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const float normalized = fmaf(element(x[k], i) - pivot, scale, shift);
      y[i] = fmaf(normalized, element(gamma[k], i), element(beta[k], i));
    }
    store_octet_once(p.y + row * columns + column(k), rounded_octet<T>(y));
  }
}

/// Rows of whole octets, at most kMostNarrowColumns columns; there is at least one row.
template <class T>
void launch_norm_narrow_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                                int64_t columns) {
  const auto launch = [&](auto lanes, auto packs, auto threads) {
    constexpr int kThreads = decltype(threads)::value;
    constexpr int kLanes = decltype(lanes)::value;
    const unsigned blocks = blocks_for(rows, kThreads / kLanes, int64_t{1} << 31);
    norm_narrow_forward_kernel<T, kLanes, decltype(packs)::value, kThreads>
        <<<blocks, kThreads, 0, context.stream>>>(p, rows, static_cast<int>(columns));
    BERTHA_CUDA_CHECK(cudaGetLastError());
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, 2> kTwo;
  constexpr std::integral_constant<int, 4> kFour;
  constexpr std::integral_constant<int, 8> kEight;
  constexpr std::integral_constant<int, 16> kSixteen;
  constexpr std::integral_constant<int, 32> kWarp;
  constexpr std::integral_constant<int, 128> kFourWarps;
  constexpr std::integral_constant<int, 256> kEightWarps;
  const int64_t octets = columns / kOctet;
  if (octets <= 4) return launch(kFour, kOne, kEightWarps);
  if (octets <= 8) return launch(kEight, kOne, kEightWarps);
  if (octets <= 16) return launch(kEight, kTwo, kEightWarps);
  if (octets <= 32) return launch(kSixteen, kTwo, kFourWarps);
  if (octets <= 64) return launch(kWarp, kTwo, kFourWarps);
  launch(kWarp, kFour, kFourWarps);
}

}  // namespace bertha
