#pragma once

#include <cuda_fp8.h>

#include "kernels/base/cuda/reduce.cuh"
#include "kernels/base/cuda/vec.cuh"

namespace bertha {

// Rounding to fp8, and what Quantize records in addition: one source for all kernels.

/// The outputs of a kernel that rounds to fp8, as plain pointers.
struct Fp8Sink {
  const float* scale = nullptr;
  uint8_t* q = nullptr;
  uint32_t* amax = nullptr;  // f32 bits, which order as the floats do
  unsigned long long* saturated = nullptr;
  const int32_t* live_rows = nullptr;  // null: all
};

/// The sink of an Fp8Result or of a Quantize.
template <class Result>
Fp8Sink sink_of(const Result& result) {
  return {.scale = static_cast<const float*>(result.scale.data),
          .q = static_cast<uint8_t*>(result.q.data),
          .amax = static_cast<uint32_t*>(result.amax.data),
          .saturated = static_cast<unsigned long long*>(result.saturated.data),
          .live_rows = static_cast<const int32_t*>(result.live_rows.data)};
}

template <__nv_fp8_interpretation_t kFormat>
inline constexpr float kLargestFp8 = kFormat == __NV_E4M3 ? 448.0f : 57344.0f;

/// Extremes of elements that have been rounded.
struct Fp8Extremes {
  uint32_t most = 0;  // largest magnitude, as the bits of a float; NaN is above infinity
  uint32_t saturated = 0;
};

/// Rounds elements of a thread by a scale that is a power of two or a bf16 number. What 16-bit
/// types allow is done in pairs: their magnitudes are compared as integers, for without sign bits
/// they order as their values do, and a product of bf16 with a power of two is exact.
/// kFewest: finds magnitudes in fewer instructions, but with more registers in some kernels.
template <class T, __nv_fp8_interpretation_t kFormat, bool kFewest = false>
class Fp8Rounding {
 public:
  __device__ __forceinline__ explicit Fp8Rounding(float scale)
      : Fp8Rounding(scale, limit_of(scale)) {}
  /// limit: limit_of(scale), which divides.
  __device__ __forceinline__ Fp8Rounding(float scale, uint32_t limit)
      : scale_(scale), limit_(limit) {}

  /// The largest magnitude of fp8, exact in T unless it exceeds T's own largest; infinity if
  /// nothing is rounded, with scale 0.
  static __device__ __forceinline__ uint32_t limit_of(float scale) {
    const float limit = kLargestFp8<kFormat> / scale;
    if constexpr (!kIsPair) return __float_as_uint(limit);
    uint32_t one;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      one = __float_as_uint(limit) >> 16;
    } else {
      one = __half_as_ushort(__float2half_rd(scale == 0.0f ? limit : fminf(limit, 65504.0f)));
    }
    return one | one << 16;
  }

  /// Eight bytes: fp8 of values * scale, the first in the lowest byte.
  __device__ __forceinline__ uint2 round(const Vec<T, kVecSize>& values) const {
    uint32_t pairs[kVecSize / 2];
#pragma unroll
    for (int i = 0; i < kVecSize / 2; ++i) {
      pairs[i] = __nv_cvt_float2_to_fp8x2(scaled_pair(values, i), __NV_SATFINITE, kFormat);
    }
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  }

  /// Records rounded rows in extremes(), only the first `live` of them; the others are padding.
  template <int kRows>
  __device__ __forceinline__ void record(const Vec<T, kVecSize> (&rows)[kRows], int live) {
    uint32_t most = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const uint32_t of_row = most_of(rows[row]);
      most = row < live ? larger(most, of_row) : most;
    }
    most_ = larger(most_, most);
    // Compared as integers, so that NaN also exceeds the limit; few calls continue after this.
    if (larger(most, limit_) == limit_) return;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row < live) saturated_ += count_beyond(rows[row]);
    }
  }

  __device__ __forceinline__ Fp8Extremes extremes() const {
    return {.most = as_float_bits(most_), .saturated = saturated_};
  }

 private:
  static constexpr bool kIsPair = sizeof(T) == 2;
  using Pair = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, __nv_bfloat162, __half2>;

  static __device__ __forceinline__ Pair as_pair(uint32_t word) {
    return reinterpret_cast<const Pair&>(word);
  }

  __device__ __forceinline__ float2 scaled_pair(const Vec<T, kVecSize>& values, int i) const {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const Pair product = __hmul2(as_pair(values.word[i]), __float2bfloat162_rn(scale_));
      const uint32_t bits = reinterpret_cast<const uint32_t&>(product);
      return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000));
    }
    return make_float2(element(values, 2 * i) * scale_, element(values, 2 * i + 1) * scale_);
  }

  /// Elements above limit_; NaN is not.
  __device__ __forceinline__ uint32_t count_beyond(const Vec<T, kVecSize>& values) const {
    uint32_t count = 0;
    if constexpr (kIsPair) {
      Pair counts = as_pair(0);
#pragma unroll
      for (const uint32_t word : values.word) {
        counts = __hadd2(counts, __hgt2(__habs2(as_pair(word)), as_pair(limit_)));
      }
      count = static_cast<uint32_t>(__low2float(counts) + __high2float(counts));
    } else {
#pragma unroll
      for (const T& value : values.elem) count += fabsf(value) > __uint_as_float(limit_) ? 1 : 0;
    }
    return count;
  }

  static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return kIsPair ? __vmaxu2(a, b) : max(a, b);
  }
  static __device__ __forceinline__ uint32_t most_of(const Vec<T, kVecSize>& values) {
    constexpr uint32_t kMagnitude = kIsPair ? 0x7fff7fff : 0x7fffffff;
    uint32_t most = 0;
#pragma unroll
    for (const uint32_t word : values.word) {
      if constexpr (kIsPair && kFewest) {
        const Pair of_both = __hmax2_nan(as_pair(most), __habs2(as_pair(word)));
        most = reinterpret_cast<const uint32_t&>(of_both);
      } else {
        most = larger(most, word & kMagnitude);
      }
    }
    return most;
  }
  /// The magnitude as the bits of a float; of a pair, the larger one.
  static __device__ __forceinline__ uint32_t as_float_bits(uint32_t most) {
    if constexpr (!kIsPair) return most;
    const uint32_t larger = max(most & 0xffff, most >> 16);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return larger << 16;
    return __float_as_uint(__half2float(__ushort_as_half(static_cast<uint16_t>(larger))));
  }

  float scale_;
  uint32_t limit_;  // largest magnitude of fp8
  uint32_t most_ = 0;
  uint32_t saturated_ = 0;
};

/// The extremes of the warp's threads, in every lane.
__device__ __forceinline__ Fp8Extremes warp_extremes(const Fp8Extremes& of_thread) {
  return {.most = __reduce_max_sync(kFullWarp, of_thread.most),
          .saturated = __reduce_add_sync(kFullWarp, of_thread.saturated)};
}

/// How many of `rows` rows from `first` on are not padding, in a matrix of fewer than 2^31 rows.
__device__ __forceinline__ int live_rows_of(const Fp8Sink& sink, int64_t first, int rows) {
  if (sink.live_rows == nullptr) return rows;
  return max(min(*sink.live_rows - static_cast<int>(first), rows), 0);
}

/// Adds a block's extremes to the operation's, by one thread.
__device__ __forceinline__ void record_extremes(const Fp8Extremes& of_block, const Fp8Sink& sink) {
  constexpr uint32_t kNaN = 0x7fc00000;
  constexpr uint32_t kInfinity = 0x7f800000;
  atomicMax(sink.amax, of_block.most > kInfinity ? kNaN : of_block.most);
  if (of_block.saturated > 0) {
    atomicAdd(sink.saturated, static_cast<unsigned long long>(of_block.saturated));
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
  if (lane == 0) record_extremes(all, sink);
}

}  // namespace bertha
