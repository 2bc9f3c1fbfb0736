#pragma once

#include "kernels/cuda/norm_softmax/narrow_rows.cuh"
#include "kernels/cuda/norm_softmax/wide_softmax.cuh"

namespace bertha {

// Softmax and log-softmax of plain 16-bit rows on narrow_rows.cuh.

template <class T, SoftmaxKind kKind>
struct NarrowSoftmax {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];
  T* output;

  __device__ static uint32_t absent() { return RawPack<T, 2>::least_pair(); }

  template <int kLanes, int N, int kPacks>
  __device__ __forceinline__ void run(RawPack<T, N> (&packs)[1][kPacks]) const {
    RawPack<T, N>(&x)[kPacks] = packs[0];
    uint32_t most = absent();  // NaN loses here; it comes back with the sum
#pragma unroll
    for (int p = 0; p < kPacks; ++p) most = x[p].larger(most);
    float top[1] = {RawPack<T, 2>::larger_of_pair(most)};
    reduce_lanes(top, kLanes, Larger());
    const float shift = top[0] == minus_infinity<float>() ? 0.0f : top[0];
    float values[kPacks][N];
    float sum[1] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      x[p].unpack(values[p]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float difference = values[p][i] - shift;
        const float e = exponential<T>(difference);
        values[p][i] = kIsLog ? difference : e;
        sum[0] += e;
      }
    }
    reduce_lanes(sum, kLanes, Add());
    float rest = 0.0f;  // 1 / sum, or log(sum)
    if (sum[0] != 0.0f) rest = kIsLog ? logf(sum[0]) : 1.0f / sum[0];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        values[p][i] = kIsLog ? values[p][i] - rest : values[p][i] * rest;
      }
      x[p].pack(values[p]);
    }
  }
};

template <class T, SoftmaxKind kKind>
struct NarrowSoftmaxGradient {
  using Element = T;
  static constexpr int kInputs = 2;
  static constexpr bool kIsLog = kKind == SoftmaxKind::kLogSoftmax;
  const T* inputs[kInputs];  // dy, y
  T* output;                 // dx, may be dy or y
  float scale;

  __device__ static uint32_t absent() { return 0; }

  template <int kLanes, int N, int kPacks>
  __device__ __forceinline__ void run(RawPack<T, N> (&packs)[2][kPacks]) const {
    float sum[1] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float dy[N];
      float y[N];
      packs[0][p].unpack(dy);
      packs[1][p].unpack(y);
#pragma unroll
      for (int i = 0; i < N; ++i) add_to_gradient_sum<kIsLog>(sum[0], dy[i], y[i]);
    }
    reduce_lanes(sum, kLanes, Add());
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float dy[N];
      float y[N];
      packs[0][p].unpack(dy);
      packs[1][p].unpack(y);
#pragma unroll
      for (int i = 0; i < N; ++i) dy[i] = gradient_of<T, kIsLog>(dy[i], y[i], sum[0], scale);
      packs[0][p].pack(dy);
    }
  }
};

}  // namespace bertha
