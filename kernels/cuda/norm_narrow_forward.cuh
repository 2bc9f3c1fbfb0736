#pragma once

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/octet.cuh"
#include "kernels/cuda/row_packs.cuh"

namespace bertha {

// LayerNorm forward of narrow rows of whole octets of 16 bits: up to a warp's 32 octets. A power of
// two of lanes shares a row, each with one octet, and has kNarrowRows rows at once; a block does its
// rows and leaves. There is no next row to wait for: so many small loads at once, and nothing
// between the loads and the stores but shuffles, is what a copy does.

inline constexpr int kNarrowRows = 4;
inline constexpr int kNarrowForwardThreads = 128;
inline constexpr int64_t kMostNarrowColumns = kOctet * kWarpThreads;

template <class T>
struct NarrowNorm {
  const T* x;
  const T* gamma;  // null: 1
  const T* beta;   // null: 0
  T* y;
  float* mean;
  float* rstd;
  float epsilon;
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kNarrowForwardThreads)
    norm_narrow_forward_kernel(NarrowNorm<T> p, int64_t rows, int columns) {
  constexpr int kGroups = kNarrowForwardThreads / kLanes;  // rows of a block side by side
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const bool inside = lane * kOctet < columns;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kGroups * kNarrowRows) + group;
  const auto row = [&](int r) { return first + r * kGroups; };
  const auto at = [&](int r) { return row(r) * columns + lane * kOctet; };

  Octet<T> x[kNarrowRows] = {};
#pragma unroll
  for (int r = 0; r < kNarrowRows; ++r) {
    if (inside && row(r) < rows) x[r] = load_octet(p.x + at(r));
  }
  const float ones[kOctet] = {1, 1, 1, 1, 1, 1, 1, 1};
  Octet<T> gamma = rounded_octet<T>(ones);
  Octet<T> beta = {};
  if (inside && p.gamma != nullptr) gamma = load_octet(p.gamma + lane * kOctet);
  if (inside && p.beta != nullptr) beta = load_octet(p.beta + lane * kOctet);

  const float per_column = 1.0f / static_cast<float>(columns);
  // Around the row's first element: a large mean then costs nothing, as in held_norm.cuh.
  float pivot[kNarrowRows];
  float sums[2 * kNarrowRows] = {};  // of differences to it, and of their squares
#pragma unroll
  for (int r = 0; r < kNarrowRows; ++r) {
    pivot[r] = __shfl_sync(kFullWarp, element(x[r], 0), 0, kLanes);
    if (!inside) continue;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const float difference = element(x[r], i) - pivot[r];
      sums[2 * r] += difference;
      sums[2 * r + 1] = fmaf(difference, difference, sums[2 * r + 1]);
    }
  }
  reduce_lanes(sums, kLanes, Add());
#pragma unroll
  for (int r = 0; r < kNarrowRows; ++r) {
    if (!inside || row(r) >= rows) continue;
    const float rest = sums[2 * r] * per_column;
    const float variance = fmaf(-sums[2 * r], rest, sums[2 * r + 1]) * per_column;
    const float scale = rsqrtf((variance < 0.0f ? 0.0f : variance) + p.epsilon);  // NaN stays
    if (lane == 0) {
      p.mean[row(r)] = pivot[r] + rest;
      p.rstd[row(r)] = scale;
    }
    float y[kOctet];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      const float normalized = ((element(x[r], i) - pivot[r]) - rest) * scale;
      y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
    }
    store_octet_once(p.y + at(r), rounded_octet<T>(y));
  }
}

/// Rows of whole octets, at most kMostNarrowColumns columns; there is at least one row.
template <class T>
void launch_norm_narrow_forward(const CudaContext& context, const NarrowNorm<T>& p, int64_t rows,
                                int64_t columns) {
  const auto launch = [&](auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    const unsigned blocks = static_cast<unsigned>(
        blocks_for(rows, kNarrowRows * (kNarrowForwardThreads / kLanes), int64_t{1} << 31));
    norm_narrow_forward_kernel<T, kLanes>
        <<<blocks, kNarrowForwardThreads, 0, context.stream>>>(p, rows, static_cast<int>(columns));
    BERTHA_CUDA_CHECK(cudaGetLastError());
  };
  const int64_t octets = columns / kOctet;
  if (octets <= 4) return launch(std::integral_constant<int, 4>());
  if (octets <= 8) return launch(std::integral_constant<int, 8>());
  if (octets <= 16) return launch(std::integral_constant<int, 16>());
  launch(std::integral_constant<int, 32>());
}

}  // namespace bertha
