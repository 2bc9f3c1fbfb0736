#pragma once

#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// Sums over all elements of each channel, first of two levels: every block leaves the sums of its
// part in scratch, partial[split][quantity][channel], and a second kernel adds up the splits.
// Threads, warps and blocks add in an order that only the extents and the device decide.
//
// A Policy has
//   Sum, kQuantities                          what a block leaves: f32 or f64, how many
//   kInFlight                                 octets per thread whose loads are under way at once
//   constant(channel, element)                one float per channel and thread; `element` is the
//                                             first that the thread sees of the channel
//   Operands<kLanes>, load<kLanes>(element, lanes, wide)
//   add<kLanes>(operands, constants, element, lanes, wide, sums)   of lanes in `lanes`
//   total(quantity, sums, count, constant, channel)                 a thread's sum of `count`
// and is passed to the kernels by value.

inline constexpr int kSumThreads = 256;
// All blocks run at once; 3 blocks with four octets of all operands on their way are 48 KiB per
// SM, which hides the memory's latency. A fourth block would cost spilled registers.
inline constexpr int kSumBlocksPerSm = 3;
inline constexpr int kLeastOctets = 4;            // of a thread, where there are that many
inline constexpr int kMostAcross = kWarpThreads;  // threads of a block next to each other in a row
// Long planes are cut into chunks, one to a block, which leaves: 160 -> 148 us for PReLU backward at
// 64 x 112 x 112. Chunks of one octet to a thread take 158 there, and 47 for 42 at 64 x 56 x 56; four
// blocks to an SM, with more registers than five need, 163 and 46.
inline constexpr int kChunkThreads = 256;
inline constexpr int kChunkBlocksPerSm = 5;
inline constexpr int64_t kLeastSlotsOfChunks = 256;  // of a plane
inline constexpr int64_t kMostChunkSplits = 1024;    // what the finish adds up without being felt

/// How a block's part is cut.
struct ChannelSumPlan {
  bool by_rows;       // channels last: threads own columns; else blocks own channels
  int lanes;          // columns of a thread: 8 or 1
  int across_log2;    // threads next to each other in a row
  int64_t slots;      // octets that a plane can touch
  int64_t per_block;  // rows, or slots of all planes of a channel
  int64_t splits;
  int chunks;         // of a plane, or 0: not in chunks
  int chunk_threads;  // of a block
};

/// One element, where an octet stands elsewhere.
template <class T>
struct Single {
  float value;
};
template <class T>
__device__ __forceinline__ float element(const Single<T>& single, int) {
  return single.value;
}
template <class T, int kLanes>
using LaneGroup = std::conditional_t<kLanes == 1, Single<T>, Vec<T, kVecSize>>;

template <int kLanes, class T>
__device__ __forceinline__ LaneGroup<T, kLanes> load_group(const T* from, const LaneRange& lanes,
                                                           bool wide) {
  if constexpr (kLanes == 1) {
    return {to_float(*from)};
  } else {
    return load_lanes(from, lanes, wide);
  }
}

/// The bits of a group that begins at `element`, the lowest first.
template <int kLanes>
__device__ __forceinline__ uint32_t group_bits(const uint8_t* mask, int64_t element) {
  const uint32_t byte = mask[element / kVecSize];
  return kLanes == 1 ? byte >> (element % kVecSize) & 1u : byte;
}

/// There is at least one element; `aligned` says whether all tensors begin at multiples of 16 bytes.
template <class Policy>
ChannelSumPlan plan_channel_sums(const CudaContext& context, const ChannelExtents& extents,
                                 bool aligned) {
  const int64_t resident = static_cast<int64_t>(context.sm_count) * kSumBlocksPerSm;
  ChannelSumPlan plan{};
  plan.by_rows = extents.inner == 1;
  int64_t items = 0;  // of a block's part
  int64_t least = 0;
  int64_t parts_beside = 0;  // blocks of one split
  if (plan.by_rows) {
    plan.lanes = aligned && extents.channels % kVecSize == 0 ? kVecSize : 1;
    const int64_t groups = ceil_div(extents.channels, plan.lanes);
    while ((1 << plan.across_log2) < kMostAcross && (1 << plan.across_log2) < groups) {
      ++plan.across_log2;
    }
    items = extents.outer;
    least = (kSumThreads >> plan.across_log2) * kLeastOctets;
    parts_beside = ceil_div(groups, 1 << plan.across_log2);
  } else {
    // Where planes do not begin at octets, a plane's first and last octet belong to others too.
    plan.slots = extents.inner % kVecSize == 0 ? extents.inner / kVecSize
                                               : (extents.inner + 2 * (kVecSize - 1)) / kVecSize;
    items = extents.outer * plan.slots;
    const int64_t chunks = ceil_div(plan.slots, kChunkThreads * Policy::kInFlight);
    if (aligned && extents.inner % kVecSize == 0 && plan.slots >= kLeastSlotsOfChunks &&
        chunks <= kMostChunkSplits && extents.channels <= INT32_MAX / kMostChunkSplits) {
      const int64_t of_thread = chunks * Policy::kInFlight;
      const int64_t most_images = kMostChunkSplits / chunks;
      plan.chunks = static_cast<int>(chunks);
      plan.chunk_threads =
          static_cast<int>(ceil_div(plan.slots, of_thread * kWarpThreads)) * kWarpThreads;
      plan.splits = chunks * (extents.outer < most_images ? extents.outer : most_images);
      return plan;
    }
    least = kSumThreads * kLeastOctets;
    parts_beside = extents.channels;
  }
  const int64_t wanted = resident / parts_beside < 1 ? 1 : resident / parts_beside;
  const int64_t even = ceil_div(items, wanted);
  plan.per_block = even < least ? least : even;
  plan.splits = ceil_div(items, plan.per_block);
  return plan;
}

/// Channels first: a block goes through slots of one channel's planes. A thread moves on by
/// kSumThreads slots, which is step_planes planes and step_slots slots.
template <class Policy>
__global__ void __launch_bounds__(kSumThreads, kSumBlocksPerSm)
    channel_planes_kernel(Policy policy, ChannelExtents extents, ChannelSumPlan plan,
                          int64_t step_planes, int64_t step_slots, bool aligned,
                          typename Policy::Sum* partial) {
  using Sum = typename Policy::Sum;
  constexpr int kQuantities = Policy::kQuantities;
  constexpr int kInFlight = Policy::kInFlight;
  __shared__ Sum of_warp[kWarpThreads];
  begin_next_kernel();
  const int64_t elements = extents.elements();
  const int64_t items = extents.outer * plan.slots;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * plan.per_block;
  const int64_t end = begin + plan.per_block < items ? begin + plan.per_block : items;
  const int64_t first_item = begin + static_cast<int>(threadIdx.x);
  const int64_t first_plane = first_item / plan.slots;
  for (int64_t channel = blockIdx.x; channel < extents.channels; channel += gridDim.x) {
    float sums[kQuantities][kVecSize] = {};
    float constants[kVecSize] = {};
    int64_t count = 0;
    int64_t plane = first_plane;
    int64_t slot = first_item - first_plane * plan.slots;
    if (first_item < end) {
      const int64_t inside = slot * kVecSize < extents.inner ? slot * kVecSize : extents.inner - 1;
      const float constant =
          policy.constant(channel, (plane * extents.channels + channel) * extents.inner + inside);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) constants[i] = constant;
    }
    for (int64_t item = first_item; item < end; item += kInFlight * kSumThreads) {
      typename Policy::template Operands<kVecSize> operands[kInFlight] = {};
      int64_t at[kInFlight];
      LaneRange lanes[kInFlight];
      bool wide[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int64_t first = (plane * extents.channels + channel) * extents.inner;
        at[k] = (first / kVecSize + slot) * kVecSize;
        const int64_t low = first - at[k];
        const int64_t high = low + extents.inner;
        const bool live = item + k * kSumThreads < end && high > 0;
        lanes[k] = {low > 0 ? static_cast<int>(low) : 0,
                    live ? (high < kVecSize ? static_cast<int>(high) : kVecSize) : 0};
        wide[k] = aligned && at[k] + kVecSize <= elements;
        if (live) operands[k] = policy.template load<kVecSize>(at[k], lanes[k], wide[k]);
        plane += step_planes;
        slot += step_slots;
        if (slot >= plan.slots) {
          slot -= plan.slots;
          ++plane;
        }
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (lanes[k].high == 0) continue;
        policy.template add<kVecSize>(operands[k], constants, at[k], lanes[k], wide[k], sums);
        count += lanes[k].high - lanes[k].low;
      }
    }
    float of_thread[kQuantities];
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) of_thread[q] = octet_sum(sums[q]);
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      const Sum total =
          count > 0 ? policy.total(q, of_thread, count, constants[0], channel) : Sum{0};
      const Sum of_block = block_sum(total, of_warp);
      if (threadIdx.x == 0) {
        partial[(blockIdx.y * int64_t{kQuantities} + q) * extents.channels + channel] = of_block;
      }
    }
  }
}

/// Channels first, planes of whole octets: a block has one chunk of a channel's planes, of every
/// kMostChunkSplits / chunks-th image.
template <class Policy>
__global__ void __launch_bounds__(kChunkThreads, kChunkBlocksPerSm)
    channel_chunks_kernel(Policy policy, ChannelExtents extents, ChannelSumPlan plan,
                          typename Policy::Sum* partial) {
  using Sum = typename Policy::Sum;
  constexpr int kQuantities = Policy::kQuantities;
  constexpr int kInFlight = Policy::kInFlight;
  constexpr LaneRange kAll{0, kVecSize};
  __shared__ Sum of_warp[kWarpThreads];
  begin_next_kernel();
  const auto channels = static_cast<unsigned>(extents.channels);
  const unsigned plane = blockIdx.x / static_cast<unsigned>(plan.chunks);  // of the first images
  const unsigned chunk = blockIdx.x % static_cast<unsigned>(plan.chunks);
  const unsigned first_image = plane / channels;
  const unsigned channel = plane % channels;
  const unsigned images_at_once = gridDim.x / static_cast<unsigned>(plan.chunks) / channels;
  const auto threads = static_cast<int>(blockDim.x);
  const int first_slot =
      static_cast<int>(chunk) * (threads * kInFlight) + static_cast<int>(threadIdx.x);

  float sums[kQuantities][kVecSize] = {};
  float constants[kVecSize] = {};
  int64_t count = 0;
  for (int64_t image = first_image; image < extents.outer; image += images_at_once) {
    const int64_t first =
        (image * channels + channel) * extents.inner + int64_t{first_slot} * kVecSize;
    typename Policy::template Operands<kVecSize> operands[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first_slot + k * threads < plan.slots) {
        operands[k] = policy.template load<kVecSize>(first + k * threads * kVecSize, kAll, true);
      }
    }
    if (count == 0 && first_slot < plan.slots) {  // behind the loads, which it does not wait for
      const float constant = policy.constant(channel, first);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) constants[i] = constant;
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first_slot + k * threads >= plan.slots) continue;
      policy.template add<kVecSize>(operands[k], constants, first + k * threads * kVecSize, kAll,
                                    true, sums);
      count += kVecSize;
    }
  }
  float of_thread[kQuantities];
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) of_thread[q] = octet_sum(sums[q]);
  const int64_t split = int64_t{first_image} * plan.chunks + chunk;
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
    const Sum total = count > 0 ? policy.total(q, of_thread, count, constants[0], channel) : Sum{0};
    const Sum of_block = block_sum(total, of_warp);
    if (threadIdx.x == 0) {
      partial[(split * kQuantities + q) * extents.channels + channel] = of_block;
    }
  }
}

/// Channels last: a thread owns kLanes columns, and the threads of a block take its rows in turn.
template <class Policy, int kLanes>
__global__ void __launch_bounds__(kSumThreads, kSumBlocksPerSm)
    channel_rows_kernel(Policy policy, int64_t rows, int64_t columns, ChannelSumPlan plan,
                        typename Policy::Sum* partial) {
  using Sum = typename Policy::Sum;
  constexpr int kQuantities = Policy::kQuantities;
  constexpr int kInFlight = Policy::kInFlight;
  constexpr LaneRange kAll{0, kLanes};
  // By lane first, so that the threads of a warp meet no bank twice.
  __shared__ Sum of_threads[kLanes][kSumThreads];
  begin_next_kernel();
  const int across = 1 << plan.across_log2;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * across;
  const int64_t column = (tile + (thread & (across - 1))) * kLanes;
  const int rows_at_once = kSumThreads >> plan.across_log2;
  // Blocks take turns, so that all of them end at the last rows, which are in the second-level cache
  // when the next kernel begins there.
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_at_once;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * rows_at_once;
  int64_t row = begin + (thread >> plan.across_log2);

  float sums[kQuantities][kLanes] = {};
  float constants[kLanes] = {};
  int64_t count = 0;
  if (column < columns && row < rows) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      constants[i] = policy.constant(column + i, row * columns + column + i);
    }
    for (; row < rows; row += kInFlight * stride) {
      typename Policy::template Operands<kLanes> operands[kInFlight] = {};
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int64_t of = row + k * stride;
        if (of < rows)
          operands[k] = policy.template load<kLanes>(of * columns + column, kAll, true);
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int64_t of = row + k * stride;
        if (of >= rows) continue;
        policy.template add<kLanes>(operands[k], constants, of * columns + column, kAll, true,
                                    sums);
        ++count;
      }
    }
  }
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      float of_thread[kQuantities];
#pragma unroll
      for (int other = 0; other < kQuantities; ++other) of_thread[other] = sums[other][i];
      of_threads[i][thread] =
          count > 0 ? policy.total(q, of_thread, count, constants[i], column + i) : Sum{0};
    }
    __syncthreads();
    // Columns of the tile: at most as many as there are threads.
    const int lane = thread >> plan.across_log2;
    const int64_t own = (tile + (thread & (across - 1))) * kLanes + lane;
    if (lane >= kLanes || own >= columns) continue;
    Sum total{0};
    for (int r = 0; r < rows_at_once; ++r) {
      total += of_threads[lane][r * across + (thread & (across - 1))];
    }
    partial[(blockIdx.y * int64_t{kQuantities} + q) * columns + own] = total;
  }
}

/// partial: Sum [plan.splits, kQuantities, C]. `aligned` as it was given to the plan.
template <class Policy>
void launch_channel_sums(const CudaContext& context, const Policy& policy,
                         const ChannelExtents& extents, const ChannelSumPlan& plan, bool aligned,
                         typename Policy::Sum* partial) {
  const auto splits = static_cast<unsigned>(plan.splits);
  if (plan.chunks > 0) {
    const auto blocks = static_cast<unsigned>(plan.splits * extents.channels);
    channel_chunks_kernel<Policy>
        <<<blocks, plan.chunk_threads, 0, context.stream>>>(policy, extents, plan, partial);
  } else if (!plan.by_rows) {
    const dim3 grid(blocks_for(extents.channels, 1, INT32_MAX), splits);
    channel_planes_kernel<Policy>
        <<<grid, kSumThreads, 0, context.stream>>>(policy, extents, plan, kSumThreads / plan.slots,
                                                   kSumThreads % plan.slots, aligned, partial);
  } else {
    const int64_t groups = ceil_div(extents.channels, plan.lanes);
    const dim3 grid(blocks_for(groups, int64_t{1} << plan.across_log2, INT32_MAX), splits);
    if (plan.lanes == kVecSize) {
      channel_rows_kernel<Policy, kVecSize><<<grid, kSumThreads, 0, context.stream>>>(
          policy, extents.outer, extents.channels, plan, partial);
    } else {
      channel_rows_kernel<Policy, 1><<<grid, kSumThreads, 0, context.stream>>>(
          policy, extents.outer, extents.channels, plan, partial);
    }
  }
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha
