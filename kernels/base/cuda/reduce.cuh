#pragma once

#include <cstdint>

namespace bertha {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

/// Sum over the warp, the same in every lane: a butterfly, so that the order is fixed.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, step);
  }
  return value;
}

/// Adds up values[0, 2 kHalf) of two lanes that lie `distance` apart, a power of two, and leaves
/// each half of the sums in values[0, kHalf): the upper one in the lane whose number has that bit.
template <int kHalf, class T, int kValues>
__device__ __forceinline__ void share_sums(T (&values)[kValues], int lane, int distance) {
  static_assert(2 * kHalf <= kValues);
  const bool upper = (lane & distance) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    // A conditional operator on class types selects an address, which is in local memory.
    T given = values[i + kHalf];
    T own = values[i];
    if (upper) {
      given = values[i];
      own = values[i + kHalf];
    }
    values[i] = own + __shfl_xor_sync(kFullWarp, given, distance);
  }
}

/// Sum over the block, in every thread of the first warp. `partial` (shared memory) has an element
/// per warp, of at most 32. All threads call it; a barrier stands before `partial` is written.
template <class T>
__device__ __forceinline__ T block_sum(T value, T* partial) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  const T sum = lane < warps ? partial[lane] : T{0};
  return warp == 0 ? warp_sum(sum) : sum;
}

/// True in every thread of the last of `blocks` blocks to come here; that block sees what thread 0
/// of the others wrote to global memory before (read it past the L1 cache, with __ldcg). `arrivals`
/// is zero before the first block and after the last one. All threads of a block call it.
__device__ __forceinline__ bool is_last_block(uint32_t* arrivals, uint32_t blocks) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(arrivals, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

/// Blocks for `items` at `per_block` each: at least 1, at most `most`.
inline unsigned blocks_for(int64_t items, int64_t per_block, int64_t most = INT32_MAX) {
  const int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks > most ? most : blocks));
}

}  // namespace bertha
