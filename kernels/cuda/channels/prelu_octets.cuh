#pragma once

#include "kernels/cuda/channels/channel_map.cuh"

namespace bertha {

// PReLU forward of tensors that are whole octets between 16-byte addresses and are counted in 31
// bits: what of channel_map.cuh is left when nothing but this has to work. At 7 x 7 and 14 x 14
// starting takes longer than memory, and every instruction before the first load counts.
//
// us, f16, N = 128, between events on an H200, all in one run: channel_map.cuh, this kernel with
// one and two octets to a thread (the chosen one in parentheses), the kernel that inductor writes
// on the same operands, and a plain copy.
//
//                512 x 7 x 7   256 x 14 x 14   128 x 28 x 28   64 x 56 x 56   64 x 112 x 112
//   NCHW  map        9.02          11.94           18.02           29.7           100.6
//         one        8.83         (11.87)         (17.73)         (29.4)         (100.7)
//         two       (8.67)         11.97           18.08           30.3           104.8
//         inductor   9.02          11.74           17.63           29.6           100.4
//   NHWC  map        9.22          12.26           17.98           29.8           100.7
//         one        8.77         (11.78)         (17.63)         (29.3)         (100.3)
//         two       (8.64)         11.87           17.95           30.4           105.1
//         inductor   8.67          11.68           17.60           29.5           100.4
//   copy             8.61          11.65           17.57           29.5           100.7
//
// An early launch changes none of these, and without events between launches takes 4.6 us for 6.3
// at 7 x 7, 7.9 for 9.6 at 14 x 14, 13.9 for 15.7 at 28 x 28.

inline constexpr int kPreluThreads = 256;
inline constexpr int kPreluBlocks = 8;  // on an SM: all of its threads

/// Zero and NaN are not above zero.
__device__ __forceinline__ float prelu(float selector, float value, float slope) {
  return selector > 0.0f ? value : slope * value;
}

template <class T, OctetChannels kChannels, int kPacks>
__global__ void __launch_bounds__(kPreluThreads, kPreluBlocks)
    prelu_octets_kernel(const T* x, const T* slope, T* y, uint32_t octets, ChannelFinder find) {
  // From the tensor's end, as in channel_map.cuh.
  const uint32_t block = gridDim.x - 1 - blockIdx.x;
  const auto octet = [&](int k) { return (block * kPacks + k) * kPreluThreads + threadIdx.x; };
  const auto has = [&](int k) { return octet(k) < octets; };
  wait_for_kernel_before();
  Vec<T, kVecSize> in[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (has(k)) in[k] = load_vec(x + int64_t{octet(k)} * kVecSize);
  }
  float slopes[kPacks][kVecSize];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has(k)) continue;
    channel_values<kChannels>(slope, find.narrow(octet(k) * kVecSize), find.extents, slopes[k]);
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (!has(k)) continue;
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float value = element(in[k], i);
      values[i] = prelu(value, value, slopes[k][i]);
    }
    store_vec_global(y + int64_t{octet(k)} * kVecSize, to_vec<T>(values));
  }
}

/// Whether launch_prelu_octets may be called; `aligned` says whether x and y begin at multiples of
/// 16 bytes.
inline bool is_in_prelu_octets(const ChannelExtents& extents, bool aligned) {
  return aligned && extents.elements() % kVecSize == 0 && extents.elements() <= INT32_MAX;
}

/// `slope_aligned` says whether the slopes begin at a multiple of 16 bytes.
template <class T>
void launch_prelu_octets(const CudaContext& context, const T* x, const T* slope, T* y,
                         const ChannelExtents& extents, bool slope_aligned) {
  const auto octets = static_cast<uint32_t>(extents.elements() / kVecSize);
  const ChannelFinder find(extents);
  dispatch_octet_channels(extents, slope_aligned, [&](auto channels) {
    constexpr OctetChannels kChannels = decltype(channels)::value;
    // More would take more registers than all threads of an SM have.
    constexpr int kMostPacks = sizeof(T) == 2 && kChannels != OctetChannels::kAny ? 2 : 1;
    const auto launch = [&](auto packs) {
      constexpr int kPacks = decltype(packs)::value;
      launch_dependent(context.stream, prelu_octets_kernel<T, kChannels, kPacks>,
                       {blocks_for(octets, kPacks * kPreluThreads, INT32_MAX), kPreluThreads}, x,
                       slope, y, octets, find);
    };
    // Two octets to a thread where all threads then have a place at once.
    const int64_t threads = int64_t{context.sm_count} * kPreluBlocks * kPreluThreads;
    if (octets <= kMostPacks * threads) {
      launch(std::integral_constant<int, kMostPacks>{});
    } else {
      launch(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace bertha
