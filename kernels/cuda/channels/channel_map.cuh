#pragma once

#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/divisor.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// One pass over tensors of channels, octet by octet, with constants per channel. A block takes its
// octets, all on their way at once, and leaves: blocks that stay and go from place to place lose 4
// to 12 % (1.2 us of 9.7 at 512 x 7 x 7, 1.5 of 31.6 at 64 x 56 x 56, 6 of 110 at 64 x 112 x 112).
//
// A Policy has
//   kTables                                   how many constants a channel has
//   kBlocks                                   per SM, at least: bounds the registers
//   kPacks                                    octets per thread
//   table(t)                                  [C] of constant t
//   Operands, load(element, lanes, wide)      what is read of the octet at `element`
//   apply(operands, constants, element, lanes, wide)
// and is passed to the kernel by value.

inline constexpr int kMapThreads = 128;
inline constexpr int kMostMapThreads = 256;

/// Threads of a block: 128 for 256 are 2 % faster at BatchNorm of 64 x 56 x 56 channels last, and as
/// fast elsewhere, except where 256 threads see the same columns all the time and 128 do not: 50.8 us
/// for 48.6 at backward of 2,048 x 7 x 7.
inline int map_threads(const ChannelExtents& extents) {
  const bool is_row = extents.inner == 1 && extents.channels == kMostMapThreads * kVecSize;
  return is_row ? kMostMapThreads : kMapThreads;
}

/// Which channel an element belongs to.
struct ChannelFinder {
  ChannelExtents extents;
  bool is_narrow;  // elements are counted in 31 bits
  Divisor inner;
  Divisor channels;

  explicit ChannelFinder(const ChannelExtents& of)
      : extents(of),
        is_narrow(of.elements() <= INT32_MAX),
        inner(is_narrow ? of.inner : 1),
        channels(is_narrow ? of.channels : 1) {}

  __device__ __forceinline__ ChannelPlace operator()(int64_t element) const {
    return is_narrow ? narrow(static_cast<uint32_t>(element)) : place_of(element, extents);
  }
  /// Of elements that are counted in 31 bits.
  __device__ __forceinline__ ChannelPlace narrow(uint32_t element) const {
    const uint32_t plane = inner.quotient(element);
    return {channels.remainder(plane), element - plane * static_cast<uint32_t>(extents.inner)};
  }
};

template <class Policy, OctetChannels kChannels>
__device__ __forceinline__ void load_constants(const Policy& policy, const ChannelPlace& place,
                                               const ChannelExtents& extents,
                                               float (&constants)[Policy::kTables][kVecSize]) {
#pragma unroll
  for (int t = 0; t < Policy::kTables; ++t) {
    channel_values<kChannels>(policy.table(t), place, extents, constants[t]);
  }
}

/// Blocks begin at the tensor's end: a kernel that read it just before has left its end in the
/// second-level cache. `stays` says that all octets of a thread lie in the same eight columns.
template <class Policy, OctetChannels kChannels>
__global__ void __launch_bounds__(kMostMapThreads, Policy::kBlocks)
    channel_map_kernel(Policy policy, ChannelFinder find, bool stays, bool aligned) {
  constexpr int kPacks = Policy::kPacks;
  const int stride = static_cast<int>(blockDim.x) * kVecSize;
  const ChannelExtents& extents = find.extents;
  const int64_t elements = extents.elements();
  const int64_t block = gridDim.x - 1 - blockIdx.x;
  const int64_t first = block * (kPacks * stride) + static_cast<int>(threadIdx.x) * kVecSize;
  wait_for_kernel_before();
  typename Policy::Operands operands[kPacks];
  LaneRange lanes[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t left = elements - (first + k * stride);
    lanes[k] = {0, left < 0 ? 0 : (left < kVecSize ? static_cast<int>(left) : kVecSize)};
    if (lanes[k].high == 0) continue;
    operands[k] = policy.load(first + k * stride, lanes[k], aligned && lanes[k].is_whole());
  }
  float constants[Policy::kTables][kVecSize];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (lanes[k].high == 0) return;
    const int64_t at = first + k * stride;
    if (k == 0 || kChannels != OctetChannels::kNeighbours || !stays) {
      load_constants<Policy, kChannels>(policy, find(at), extents, constants);
    }
    policy.apply(operands[k], constants, at, lanes[k], aligned && lanes[k].is_whole());
  }
}

/// `aligned` says whether all tensors begin at multiples of 16 bytes, `table_aligned` whether all
/// tables do. There is at least one element.
template <class Policy>
void map_channels(const CudaContext& context, const Policy& policy, const ChannelExtents& extents,
                  bool aligned, bool table_aligned) {
  const int64_t octets = ceil_div(extents.elements(), kVecSize);
  const int threads = map_threads(extents);
  const dim3 blocks(blocks_for(octets, threads * Policy::kPacks, INT32_MAX));
  const ChannelFinder find(extents);
  const bool stays = extents.inner == 1 && int64_t{threads} * kVecSize % extents.channels == 0;
  dispatch_octet_channels(extents, table_aligned, [&](auto channels) {
    auto* const kernel = channel_map_kernel<Policy, decltype(channels)::value>;
    if constexpr (decltype(channels)::value == OctetChannels::kNeighbours) {
      launch_dependent(context.stream, kernel, {blocks, threads}, policy, find, stays, aligned);
    } else {
      // Measured: blocks of planes that are placed early are slower.
      kernel<<<blocks, threads, 0, context.stream>>>(policy, find, stays, aligned);
      BERTHA_CUDA_CHECK(cudaGetLastError());
    }
  });
}

}  // namespace bertha
