#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/common/fp8_sink.h"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec.cuh"

namespace bertha {

// Rounding to fp8 with what Quantize records beside it: one source for all kernels.

template <__nv_fp8_interpretation_t kFormat>
inline constexpr float kLargestFp8 = kFormat == __NV_E4M3 ? 448.0f : 57344.0f;

/// Of the elements that a thread has rounded.
struct Fp8Extremes {
  uint32_t most = 0;  // largest magnitude, as bits
  uint32_t saturated = 0;
};

/// Eight bytes: fp8 of values * scale, the first in the lowest byte. Padding leaves no trace in
/// `extremes`.
template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint2 to_fp8(const float (&values)[kVecSize], float scale, bool is_live,
                                        Fp8Extremes& extremes) {
  uint32_t most = 0;
  uint32_t saturated = 0;
  uint32_t pairs[kVecSize / 2];
#pragma unroll
  for (int i = 0; i < kVecSize / 2; ++i) {
    float2 scaled;
    scaled.x = values[2 * i] * scale;
    scaled.y = values[2 * i + 1] * scale;
    most = max(most, __float_as_uint(fabsf(values[2 * i])));
    most = max(most, __float_as_uint(fabsf(values[2 * i + 1])));
    saturated += fabsf(scaled.x) > kLargestFp8<kFormat> ? 1 : 0;
    saturated += fabsf(scaled.y) > kLargestFp8<kFormat> ? 1 : 0;
    pairs[i] = __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, kFormat);
  }
  if (is_live) {
    extremes.most = max(extremes.most, most);
    extremes.saturated += saturated;
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

/// Of the warp's threads, in every lane.
__device__ __forceinline__ Fp8Extremes warp_extremes(const Fp8Extremes& of_thread) {
  return {.most = __reduce_max_sync(kFullWarp, of_thread.most),
          .saturated = __reduce_add_sync(kFullWarp, of_thread.saturated)};
}

/// Adds a block's extremes to the operation's, by one thread.
__device__ __forceinline__ void record_extremes(const Fp8Extremes& of_block, uint32_t* amax,
                                                unsigned long long* saturated) {
  constexpr uint32_t kNaN = 0x7fc00000;
  constexpr uint32_t kInfinity = 0x7f800000;
  atomicMax(amax, of_block.most > kInfinity ? kNaN : of_block.most);
  if (of_block.saturated > 0) {
    atomicAdd(saturated, static_cast<unsigned long long>(of_block.saturated));
  }
}

/// The same of all threads of a block, which call it together. `of_warp`: an element per warp in
/// shared memory.
__device__ __forceinline__ void record_block_extremes(const Fp8Extremes& of_thread,
                                                      Fp8Extremes* of_warp, const Fp8Sink& sink) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int warps = static_cast<int>(blockDim.x) / kWarpThreads;
  const Fp8Extremes own = warp_extremes(of_thread);
  if (lane == 0) of_warp[warp] = own;
  __syncthreads();
  if (warp != 0) return;
  const Fp8Extremes all = warp_extremes(lane < warps ? of_warp[lane] : Fp8Extremes{});
  if (lane == 0) record_extremes(all, sink.amax, sink.saturated);
}

}  // namespace bertha
