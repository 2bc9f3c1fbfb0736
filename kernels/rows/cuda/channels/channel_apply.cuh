#pragma once

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/rows/cuda/channels/channels.cuh"

namespace bertha {

// One pass over tensors of channels with constants per channel: PReLU forward, and the last kernel
// of BatchNorm where its tensors do not fit into shared memory. One-shot grid; a thread loads all
// of its vectors before it works on one. Bound by memory: PReLU takes 99 % of a copy at 64 x 112 x
// 112. 64-bit indices and vectors that may be partial (kAny) are for what the others cannot take.
//
// A Policy has
//   kTables, table(t)               constants of a channel, table [C] of constant t
//   kThreads, kBlocksPerSm          of a block; the least that run at once: bounds the registers
//   kVecs                           vectors of a thread
//   kOverlapsPlanes                 launched while the kernel before runs, also for S > 1
//   Operands, load(element, access)
//   apply(operands, constants, element, access)
// and is passed to the kernel by value.

inline constexpr int kMostApplyThreads = 256;

/// Blocks begin at the tensor's end, which the kernel before has left in L2. `same_columns` says
/// that all vectors of a thread lie in the same eight channels; `aligned` is for kAny.
template <class Policy, VecChannels kChannels>
__global__ void __launch_bounds__(kMostApplyThreads, Policy::kBlocksPerSm)
    channel_apply_kernel(Policy policy, ChannelFinder find, int64_t vecs, bool same_columns,
                         bool aligned) {
  constexpr int kVecs = Policy::kVecs;
  constexpr bool kIsAny = kChannels == VecChannels::kAny;
  using Index = std::conditional_t<kIsAny, int64_t, uint32_t>;
  const Index block = gridDim.x - 1 - blockIdx.x;
  const auto vec_of = [&](int k) { return (block * kVecs + k) * blockDim.x + threadIdx.x; };
  const auto has = [&](int k) { return vec_of(k) < static_cast<Index>(vecs); };
  const auto element_of = [&](int k) { return int64_t{vec_of(k)} * kVecSize; };
  const auto access_of = [&](int k) {
    if constexpr (!kIsAny) return VecAccess{};
    const int64_t left = find.extents().elements() - element_of(k);
    return left < kVecSize ? VecAccess{static_cast<int>(left), false}
                           : VecAccess{kVecSize, aligned};
  };
  wait_for_kernel_before();
  typename Policy::Operands operands[kVecs];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    if (has(k)) operands[k] = policy.load(element_of(k), access_of(k));
  }
  float constants[Policy::kTables][kVecSize];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    if (!has(k)) return;
    if (k == 0 || kChannels != VecChannels::kConsecutive || !same_columns) {
      const ChannelPlace place =
          kIsAny ? find(element_of(k)) : find.narrow(static_cast<uint32_t>(vec_of(k)) * kVecSize);
      for (int t = 0; t < Policy::kTables; ++t) {
        channel_values<kChannels>(policy.table(t), place, find.extents(), constants[t]);
      }
    }
    policy.apply(operands[k], constants, element_of(k), access_of(k));
  }
}

/// `aligned` says whether all tensors begin at multiples of 16 bytes, `table_aligned` whether all
/// tables do. There is at least one element.
template <class Policy>
void apply_to_channels(const CudaContext& context, const Policy& policy,
                       const ChannelsShape& extents, bool aligned, bool table_aligned) {
  // 256 threads where they see the same 2,048 columns all the time, as 128 do not.
  const bool is_row = extents.inner == 1 && extents.channels == kMostApplyThreads * kVecSize;
  const int threads = is_row ? kMostApplyThreads : Policy::kThreads;
  const int64_t vecs = ceil_div(extents.elements(), kVecSize);
  LaunchShape shape{blocks_for(vecs, threads * Policy::kVecs), threads};
  const bool same_columns = int64_t{threads} * kVecSize % extents.channels == 0;
  const ChannelFinder find(extents);
  const auto launch = [&](auto* kernel, bool overlaps) {
    shape.is_dependent = overlaps && context.kernels == KernelSet::kSm90a;
    launch_kernel(context.stream, kernel, shape, policy, find, vecs, same_columns, aligned);
  };
  using Kind = VecChannels;
  const bool is_whole =
      aligned && extents.elements() % kVecSize == 0 && extents.elements() <= INT32_MAX;
  if (is_whole && (extents.channels == 1 || extents.inner % kVecSize == 0)) {
    launch(channel_apply_kernel<Policy, Kind::kOne>, Policy::kOverlapsPlanes);
  } else if (is_whole && extents.inner == 1 && extents.channels % kVecSize == 0 && table_aligned) {
    launch(channel_apply_kernel<Policy, Kind::kConsecutive>, true);
  } else if (is_whole && extents.inner >= kVecSize) {
    launch(channel_apply_kernel<Policy, Kind::kTwo>, Policy::kOverlapsPlanes);
  } else {
    launch(channel_apply_kernel<Policy, Kind::kAny>, false);
  }
}

}  // namespace bertha
