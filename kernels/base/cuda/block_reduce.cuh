#pragma once

#include "kernels/base/cuda/reduce.cuh"

namespace bertha {

// Reductions over a block of any number of warps, whose result every thread needs: one barrier. The
// order of every combination follows from the block size alone.
//
// cub::BlockReduce needs the block size at compile time, and so a kernel for each size instead of
// one for all, and a second barrier for a result in every thread. It is not faster for softmax, and
// makes LayerNorm forward between 1.1 % slower and 1.6 % faster (kernels/rows/measured/rows.md).

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
  template <class T>
  __device__ static T identity() {
    return T{0};
  }
};
/// NaN loses.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
  template <class T>
  __device__ static T identity() {
    return -static_cast<T>(INFINITY);
  }
};

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

/// Shared memory through which up to kWarps warps, a power of two, exchange K values each. Two
/// buffers alternate from call to call, so that one barrier per call is enough: nobody can be two
/// calls ahead of a reader.
template <class T, int K, int kWarps>
struct WarpExchange {
  static_assert((kWarps & (kWarps - 1)) == 0, "the parts are combined in pairs");
  T parts[2][kWarps][K];
};

/// Stores the warp's values, the same in all of its lanes, and reads into the lane the values of
/// warp lane % kWarps; `part` keeps its value if that warp does not exist. `turn` counts the calls.
template <int K, class T, int kMost, int kWarps, class Sync>
__device__ __forceinline__ void exchange_warps(const T (&own)[K], T (&part)[K],
                                               WarpExchange<T, kMost, kWarps>& exchange, int turn,
                                               int warps, const Sync& sync) {
  static_assert(K <= kMost);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  auto& parts = exchange.parts[turn % 2];
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) parts[threadIdx.x / kWarpThreads][k] = own[k];
  }
  sync();
  const int other = lane % kWarps;
  if (other >= warps) return;
#pragma unroll
  for (int k = 0; k < K; ++k) part[k] = parts[other][k];
}

/// Replaces each value by its combination over the first `warps` warps, which all call it; sync()
/// is a barrier of their threads.
template <int K, class T, int kMost, int kWarps, class Combine, class Sync>
__device__ __forceinline__ void block_reduce(T (&values)[K], const Combine& combine,
                                             WarpExchange<T, kMost, kWarps>& exchange, int turn,
                                             int warps, const Sync& sync) {
  reduce_lanes(values, kWarpThreads, combine);
  T part[K];
#pragma unroll
  for (int k = 0; k < K; ++k) part[k] = Combine::template identity<T>();
  exchange_warps(values, part, exchange, turn, warps, sync);
#pragma unroll
  for (int k = 0; k < K; ++k) values[k] = part[k];
  reduce_lanes(values, kWarps, combine);
}

/// The same over all warps of the block.
template <int K, class T, int kMost, int kWarps, class Combine>
__device__ __forceinline__ void block_reduce(T (&values)[K], const Combine& combine,
                                             WarpExchange<T, kMost, kWarps>& exchange,
                                             int turn = 0) {
  block_reduce(values, combine, exchange, turn, static_cast<int>(blockDim.x) / kWarpThreads,
               [] { __syncthreads(); });
}

}  // namespace bertha
