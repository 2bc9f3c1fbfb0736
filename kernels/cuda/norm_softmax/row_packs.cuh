#pragma once

#include "kernels/cuda/common/compute.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"

namespace bertha {

// What the kernels of rows of any width share: parts of packs, and sums over lanes.

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN loses.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

/// Which elements of a pack are the row's: all, or at the edges of shifted rows some.
struct WholePack {
  __device__ constexpr bool has(int) const { return true; }
};
struct PartPack {
  int low;
  int high;
  __device__ bool has(int i) const { return i >= low && i < high; }
};

template <class T, int N>
__device__ __forceinline__ void store_lanes(T* to, const Compute<T> (&values)[N], WholePack) {
  store_compute(to, values);
}
template <class T, int N>
__device__ __forceinline__ void store_lanes(T* to, const Compute<T> (&values)[N], PartPack lanes) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (lanes.has(i)) to[i] = from_compute<T>(values[i]);
  }
}

/// Combines each value over `lanes` neighbours, a power of two; the result in all of them. All
/// lanes of the warp call it.
template <int K, class T, class Combine>
__device__ __forceinline__ void reduce_lanes(T (&values)[K], int lanes, const Combine& combine) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    if (step >= lanes) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      values[k] = combine(values[k], __shfl_xor_sync(kFullWarp, values[k], step));
    }
  }
}

}  // namespace bertha
