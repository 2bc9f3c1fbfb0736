#pragma once

#include "kernels/cuda/channels.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/dependent_launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bertha {

// One pass over tensors of channels, octet by octet, with constants per channel.
//
// A Policy has
//   kTables                                   how many constants a channel has
//   kBlocks                                   per multiprocessor
//   kInFlight                                 octets per thread whose loads are under way at once
//   table(t)                                  [C] of constant t
//   Operands, load(element, lanes, wide)      what is read of the octet at `element`
//   apply(operands, constants, element, lanes, wide)
// and is passed to the kernel by value.

// kBlocks * kMapThreads * kInFlight octets of all operands should be about 32 KiB, which hides the
// memory's latency; registers bound the rest.

inline constexpr int kMapThreads = 256;

template <class Policy, OctetChannels kChannels>
__device__ __forceinline__ void load_constants(const Policy& policy, const ChannelPlace& place,
                                               const ChannelExtents& extents,
                                               float (&constants)[Policy::kTables][kOctet]) {
#pragma unroll
  for (int t = 0; t < Policy::kTables; ++t) {
    channel_values<kChannels>(policy.table(t), place, extents, constants[t]);
  }
}

/// The grid goes through the tensor from its end to its beginning: a kernel that read it just before
/// has left its end in the second-level cache. `step` is the place of the element that lies one turn
/// of the grid before element 0, in a tensor that is continued to that side.
template <class Policy, OctetChannels kChannels>
__global__ void __launch_bounds__(kMapThreads, Policy::kBlocks)
    channel_map_kernel(Policy policy, ChannelExtents extents, ChannelPlace step, int64_t stride,
                       bool aligned) {
  constexpr int kInFlight = Policy::kInFlight;
  const int64_t elements = extents.elements();
  const int64_t of_thread = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kOctet;
  const int64_t turns = ceil_div(elements, stride);
  int64_t element = (turns - 1) * stride + of_thread;
  ChannelPlace place = place_of(element, extents);
  wait_for_kernel_before();
  // Where rows divide the grid's stride, a thread sees the same eight columns all the time.
  const bool stays = kChannels == OctetChannels::kNeighbours && step.channel == 0;
  float constants[Policy::kTables][kOctet];
  if (stays) load_constants<Policy, kChannels>(policy, place, extents, constants);
  for (int64_t turn = 0; turn < turns; turn += kInFlight, element -= kInFlight * stride) {
    typename Policy::Operands operands[kInFlight] = {};
    LaneRange lanes[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int64_t left = turn + k < turns ? elements - (element - k * stride) : 0;
      lanes[k] = {0, left < 0 ? 0 : (left < kOctet ? static_cast<int>(left) : kOctet)};
      if (lanes[k].high == 0) continue;
      operands[k] = policy.load(element - k * stride, lanes[k], aligned && lanes[k].high == kOctet);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (lanes[k].high > 0) {
        if (!stays) load_constants<Policy, kChannels>(policy, place, extents, constants);
        policy.apply(operands[k], constants, element - k * stride, lanes[k],
                     aligned && lanes[k].high == kOctet);
      }
      place = moved(place, step, extents);
    }
  }
}

/// `aligned` says whether all tensors begin at multiples of 16 bytes, `table_aligned` whether all
/// tables do. There is at least one element.
template <class Policy>
void map_channels(const CudaContext& context, const Policy& policy, const ChannelExtents& extents,
                  bool aligned, bool table_aligned) {
  const int64_t octets = (extents.elements() + kOctet - 1) / kOctet;
  const unsigned blocks =
      blocks_for(octets, kMapThreads * Policy::kInFlight,
                 static_cast<int64_t>(context.multiprocessors) * Policy::kBlocks);
  const int64_t stride = static_cast<int64_t>(blocks) * kMapThreads * kOctet;
  const int64_t period = extents.channels * extents.inner;
  const ChannelPlace step = place_of(period - stride % period, extents);
  dispatch_octet_channels(extents, table_aligned, [&](auto channels) {
    auto* const kernel = channel_map_kernel<Policy, decltype(channels)::value>;
    if constexpr (decltype(channels)::value == OctetChannels::kNeighbours) {
      launch_dependent(context.stream, kernel, dim3(blocks), kMapThreads, policy, extents, step,
                       stride, aligned);
    } else {
      // Measured: blocks of planes that are placed early are slower.
      kernel<<<blocks, kMapThreads, 0, context.stream>>>(policy, extents, step, stride, aligned);
      BERTHA_CUDA_CHECK(cudaGetLastError());
    }
  });
}

}  // namespace bertha
