#pragma once

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/rows/cuda/channels/channels.cuh"

namespace bertha {

// Sums over all elements of each channel in two kernels, for tensors that channel_tiles.cuh does
// not take: every block stores the sums of its split to partial [splits, quantities, C], and a
// small kernel adds up the splits of eight channels per block.
//
// Bound by memory. Channels first, a block has a piece of one channel, of 2 vectors per thread
// (PReLU and BatchNorm backward of 16 bits; one-shot grid): PReLU backward takes 148 us at 64 x 112
// x 112. Channels last, a persistent grid, whose threads own eight columns.
//
// A Sums policy has
//   Sum, kQuantities                 type and number of the sums of a channel
//   kInFlight                        vectors of a thread that are loaded at once
//   constant(channel, element)       one float per channel and thread; `element` is the first that
//                                    the thread sees of the channel
//   Operands<N>, load<N>(element)    N = 8 elements or 1
//   add<N>(operands, constants, element, sums)
//   total(quantity, sums, count, constant, channel)    a thread's sum of `count` elements
// A Finish policy has
//   Sum, kQuantities, kTables        what comes in, and how many constants of a channel go out
//   Inputs, load(channel)            what else it needs, older than the kernel that sums
//   (channel, inputs, sums, writes, constants)
//                                    computes the constants, and with `writes`, which is true once
//                                    for a channel, stores the operation's results
// Both are passed to kernels by value.

inline constexpr int kSumThreads = 256;
inline constexpr int kColumnBlocksPerSm = 3;  // 48 KiB in flight per SM; four would spill registers
inline constexpr int kPlaneBlocksPerSm = 5;
inline constexpr int kLeastVecs = 4;          // of a thread in columns, where there are that many
inline constexpr int64_t kMostSplits = 1024;  // of planes; their sums take no measurable time

/// Loads of a thread in flight, of N elements each.
template <class Policy, int N>
inline constexpr int kSumInFlight = N == 1 ? 4 * Policy::kInFlight : Policy::kInFlight;

/// The parts of a channel or a group of columns.
struct ChannelSumPlan {
  int width;  // elements of a load: 8, or 1 where vectors are misaligned or in several channels
  int across_log2;    // columns: threads next to each other in a row
  int64_t items;      // loads of a channel, or rows
  int64_t per_plane;  // loads of a plane
  int64_t groups;     // channels, or groups of columns: blocks of a split
  int64_t splits;
  Divisor by_plane{1};  // per_plane, where items are counted in 31 bits
};

/// There is at least one element; `aligned` says whether all tensors begin at multiples of 16
/// bytes.
template <class Policy>
ChannelSumPlan plan_channel_sums(const CudaContext& context, const ChannelsShape& extents,
                                 bool aligned) {
  ChannelSumPlan plan{};
  if (extents.inner == 1) {
    plan.width = aligned && extents.channels % kVecSize == 0 ? kVecSize : 1;
    const int64_t columns = extents.channels / plan.width;
    while ((1 << plan.across_log2) < kWarpThreads && (1 << plan.across_log2) < columns) {
      ++plan.across_log2;
    }
    plan.items = extents.outer;
    plan.groups = ceil_div(columns, 1 << plan.across_log2);
    const int64_t resident = int64_t{context.sm_count} * kColumnBlocksPerSm / plan.groups;
    const int64_t even = ceil_div(plan.items, resident < 1 ? 1 : resident);
    const int64_t least = (kSumThreads >> plan.across_log2) * kLeastVecs;
    plan.splits = ceil_div(plan.items, even < least ? least : even);
    return plan;
  }
  const bool is_whole = aligned && extents.inner % kVecSize == 0;
  plan.width = is_whole && extents.of_channel() <= UINT32_MAX ? kVecSize : 1;
  plan.per_plane = extents.inner / plan.width;
  plan.items = extents.outer * plan.per_plane;
  plan.groups = extents.channels;
  if (plan.items <= INT32_MAX) plan.by_plane = Divisor(plan.per_plane);
  const int in_flight = plan.width == 1 ? kSumInFlight<Policy, 1> : kSumInFlight<Policy, kVecSize>;
  const int64_t pieces = ceil_div(plan.items, in_flight * kSumThreads);
  plan.splits = pieces < kMostSplits ? pieces : kMostSplits;
  return plan;
}

/// Sums of a block whose threads share a channel, in thread 0; `shared` as in block_sum.
template <class Policy, int N, class Count>
__device__ __forceinline__ void sum_block(const Policy& policy,
                                          const float (&sums)[Policy::kQuantities][N],
                                          float constant, Count count, int64_t channel,
                                          typename Policy::Sum* shared,
                                          typename Policy::Sum (&of_block)[Policy::kQuantities]) {
  float of_thread[Policy::kQuantities];
  for (int q = 0; q < Policy::kQuantities; ++q) of_thread[q] = vec_sum(sums[q]);
  for (int q = 0; q < Policy::kQuantities; ++q) {
    typename Policy::Sum total{0};
    if (count > 0) total = policy.total(q, of_thread, count, constant, channel);
    of_block[q] = block_sum(total, shared);
  }
}

/// Grid (groups, splits). A thread's items are `step` apart, kInFlight of them at once; channels
/// last neighbouring blocks have neighbouring rows, so that all end at the last rows, where the
/// next kernel begins. Threads of a group of columns: `across` columns of vectors, the others rows.
template <class Policy, int N, bool kColumns>
__global__ void __launch_bounds__(kSumThreads,
                                  kColumns || N == 1 ? kColumnBlocksPerSm : kPlaneBlocksPerSm)
    channel_sums_kernel(Policy policy, ChannelsShape extents, ChannelSumPlan plan,
                        typename Policy::Sum* partial) {
  using Sum = typename Policy::Sum;
  constexpr int kQuantities = Policy::kQuantities;
  constexpr int kInFlight = kSumInFlight<Policy, N>;
  using Item = std::conditional_t<N == 1 || kColumns, int64_t, uint32_t>;
  // Columns: by element first, so that the threads of a warp share no bank.
  __shared__ Sum shared[kColumns ? N * kSumThreads : kWarpThreads];
  begin_next_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int across = kColumns ? 1 << plan.across_log2 : 1;
  const int at_once = kColumns ? kSumThreads >> plan.across_log2 : kSumThreads;
  const int column = thread & (across - 1);
  const int64_t first_channel = static_cast<int64_t>(blockIdx.x) * across * (kColumns ? N : 1);
  const int64_t channel = first_channel + column * N;
  const Item splits = gridDim.y;
  const Item step = kColumns ? splits * at_once : at_once;
  const Item end = channel < extents.channels ? static_cast<Item>(plan.items) : 0;
  const auto element_of = [&](Item item) {
    if constexpr (kColumns) return item * extents.channels + channel;
    const auto per_plane = static_cast<Item>(plan.per_plane);
    const Item image = N > 1 || plan.items <= INT32_MAX
                           ? plan.by_plane.quotient(static_cast<uint32_t>(item))
                           : item / per_plane;
    return (image * extents.channels + channel) * extents.inner + (item - image * per_plane) * N;
  };

  float sums[kQuantities][N] = {};
  float constants[N] = {};
  Item count = 0;
  Item item = static_cast<Item>(blockIdx.y) * at_once * (kColumns ? 1 : kInFlight) +
              (kColumns ? thread >> plan.across_log2 : thread);
  for (; item < end; item += splits * at_once * kInFlight) {
    typename Policy::template Operands<N> operands[kInFlight];
    int64_t at[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      at[k] = element_of(item + k * step);
      if (item + k * step < end) operands[k] = policy.template load<N>(at[k]);
    }
    if (count == 0) {  // after the loads, which do not wait for it
#pragma unroll
      for (int i = 0; i < N; ++i) {
        constants[i] = kColumns || i == 0 ? policy.constant(channel + i, at[0] + i) : constants[0];
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (item + k * step >= end) continue;
      policy.template add<N>(operands[k], constants, at[k], sums);
      ++count;
    }
  }

  if constexpr (!kColumns) {
    Sum of_block[kQuantities];
    sum_block(policy, sums, constants[0], count * N, channel, shared, of_block);
    for (int q = 0; q < kQuantities && thread == 0; ++q) {
      partial[(blockIdx.y * int64_t{kQuantities} + q) * extents.channels + channel] = of_block[q];
    }
  } else {
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float of_thread[kQuantities];
        for (int other = 0; other < kQuantities; ++other) of_thread[other] = sums[other][i];
        shared[i * kSumThreads + thread] =
            count > 0 ? policy.total(q, of_thread, count, constants[i], channel + i) : Sum{0};
      }
      __syncthreads();
      // Columns of the group: at most as many as there are threads.
      const int i = thread >> plan.across_log2;
      if (i >= N || channel + i >= extents.channels) continue;
      Sum total{0};
      for (int r = 0; r < at_once; ++r) total += shared[i * kSumThreads + r * across + column];
      partial[(blockIdx.y * int64_t{kQuantities} + q) * extents.channels + channel + i] = total;
    }
  }
}

/// partial: Sum [plan.splits, kQuantities, C].
template <class Policy>
void launch_channel_sums(const CudaContext& context, const Policy& policy,
                         const ChannelsShape& extents, const ChannelSumPlan& plan,
                         typename Policy::Sum* partial) {
  const auto launch = [&](auto* kernel) {
    launch_kernel(context.stream, kernel, {{plan.groups, plan.splits}, kSumThreads}, policy,
                  extents, plan, partial);
  };
  if (extents.inner == 1 && plan.width == 1) return launch(channel_sums_kernel<Policy, 1, true>);
  if (extents.inner == 1) return launch(channel_sums_kernel<Policy, kVecSize, true>);
  if (plan.width == 1) return launch(channel_sums_kernel<Policy, 1, false>);
  launch(channel_sums_kernel<Policy, kVecSize, false>);
}

// --- second kernel -----------------------------------------------------------------------------

inline constexpr int kFinishChannels = 8;  // of a block: a sector of 32 bytes at least
inline constexpr int kFinishSplits = 32;   // of a block at once
// Splits of a thread in flight: more registers would keep the kernel from starting early.
inline constexpr int kFinishInFlight = 4;

/// Room for the constants of a channel; an array has an element at least.
template <class Finish>
inline constexpr int kConstants = Finish::kTables > 0 ? Finish::kTables : 1;

/// Neighbouring threads take channels, the others splits; tables [kTables, stride].
template <class Finish>
__global__ void __launch_bounds__(kFinishChannels* kFinishSplits)
    finish_channels_kernel(Finish finish, const typename Finish::Sum* partial, int64_t splits,
                           int64_t channels, float* tables, int64_t stride) {
  using Sum = typename Finish::Sum;
  constexpr int kQuantities = Finish::kQuantities;
  __shared__ Sum of_threads[kFinishSplits][kQuantities][kFinishChannels];
  begin_next_kernel();
  const int own = static_cast<int>(threadIdx.x) % kFinishChannels;
  const int first = static_cast<int>(threadIdx.x) / kFinishChannels;
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFinishChannels + own;
  const bool finishes = first == 0 && channel < channels;
  typename Finish::Inputs inputs{};
  if (finishes) inputs = finish.load(channel);
  wait_for_kernel_before();
  Sum sums[kQuantities] = {};
  const int64_t end = channel < channels ? splits : 0;
  for (int64_t split = first; split < end; split += kFinishInFlight * kFinishSplits) {
    Sum of_split[kFinishInFlight][kQuantities];
    for (int k = 0; k < kFinishInFlight; ++k) {
      const int64_t of = split + k * kFinishSplits;
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
        of_split[k][q] = of < end ? partial[(of * kQuantities + q) * channels + channel] : Sum{0};
      }
    }
    for (int k = 0; k < kFinishInFlight; ++k) {
      for (int q = 0; q < kQuantities; ++q) sums[q] += of_split[k][q];
    }
  }
  for (int q = 0; q < kQuantities; ++q) of_threads[first][q][own] = sums[q];
  __syncthreads();
  if (!finishes) return;
#pragma unroll 8
  for (int other = 1; other < kFinishSplits; ++other) {
    for (int q = 0; q < kQuantities; ++q) sums[q] += of_threads[other][q][own];
  }
  float constants[kConstants<Finish>];
  finish(channel, inputs, sums, true, constants);
  for (int t = 0; t < Finish::kTables; ++t) tables[t * stride + channel] = constants[t];
}

/// Follows launch_channel_sums, which has stored the partial sums. With splits 0 no partial sums
/// exist: then the kernel before may still write what finish.load reads, and the launch is
/// ordinary.
template <class Finish>
void finish_channels(const CudaContext& context, const Finish& finish,
                     const typename Finish::Sum* partial, int64_t splits, int64_t channels,
                     float* tables, int64_t stride) {
  LaunchShape shape{blocks_for(channels, kFinishChannels), kFinishChannels * kFinishSplits};
  shape.is_dependent = splits > 0 && context.kernels == KernelSet::kSm90a;
  launch_kernel(context.stream, finish_channels_kernel<Finish>, shape, finish, partial, splits,
                channels, tables, stride);
}

/// f32 [kTables, stride] in scratch: what the last kernel needs of each channel.
struct ChannelTables {
  float* data;
  int64_t stride;  // channels, rounded up to a multiple of 16 bytes

  __device__ const float* of(int table) const { return data + table * stride; }
};

/// Both kernels, and the constants that follow from the sums. `aligned` as in plan_channel_sums.
template <class Sums, class Finish>
ChannelTables sum_channels(CudaContext& context, const Sums& sums, const Finish& finish,
                           const ChannelsShape& extents, bool aligned) {
  using Sum = typename Sums::Sum;
  const ChannelSumPlan plan = plan_channel_sums<Sums>(context, extents, aligned);
  const int64_t stride = round_up(extents.channels, 4);
  const int64_t bytes = plan.splits * Sums::kQuantities * stride * int64_t{sizeof(Sum)};
  void* const scratch = context.scratch.take(bytes + Finish::kTables * stride * 4);
  const ChannelTables tables{reinterpret_cast<float*>(static_cast<char*>(scratch) + bytes), stride};
  launch_channel_sums(context, sums, extents, plan, static_cast<Sum*>(scratch));
  finish_channels(context, finish, static_cast<const Sum*>(scratch), plan.splits, extents.channels,
                  tables.data, stride);
  return tables;
}

}  // namespace bertha
