#pragma once

#include <cooperative_groups.h>

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/rows/cuda/channels/channel_sums.cuh"
#include "kernels/rows/cuda/channels/channel_tile_plan.cuh"
#include "kernels/rows/cuda/channels/tile_sums.cuh"

namespace bertha {

// Sums over all elements of each channel and what follows from them, in one launch that reads
// memory once. A tile has as many neighbouring channels as make their elements of an image whole
// vectors; one or more blocks own it. Every block adds up its part, keeps what it has read in
// shared memory, exchanges sums with the tile's other blocks, and applies the result to what it
// kept. Blocks of planes are a cluster; blocks of columns, more than a cluster has, all run at once
// and exchange flag-packed sums through global memory.
//
// Bound by the round trips that follow each other (elements, sums, results) as much as by memory.
// BatchNorm forward of 128 x 128 x 28 x 28 takes 25.8 us where three kernels take 38.0 (f16, H200;
// kernels/rows/measured/rows.md).
//
// A Policy has
//   Element, kKept                     the io type, and how many vectors of it are kept at a place
//   sums, finish                       as in channel_sums.cuh
//   keep(operands of sums, to, stride) keeps vectors at `to`, `stride` elements apart
//   restored(from, stride, element)    operands of apply, loading those that were not kept
//   apply, kApplyInFlight              as in channel_apply.cuh
// and is passed to the kernel by value. The last three are unused where kKept is 0.

/// Where a thread is in its tile: at a vector of the tile, in a slot of the row.
template <VecChannels kChannels>
struct TileCursor {
  int vec;
  int slot;
  int element;

  __device__ __forceinline__ void advance(const ChannelTiles& tiles) {
    vec += tiles.stride;
    element += tiles.step_elements;
    if constexpr (kChannels == VecChannels::kOne) {
      slot += tiles.step_slots;
      if (slot >= tiles.width) {
        slot -= tiles.width;
        element += tiles.wrap_elements;
      }
    }
  }
};

/// What a block has of its tile, and where one of its threads begins. Grid (tiles, blocks of a
/// tile).
template <VecChannels kChannels>
struct TilePart {
  int rank;  // of the block in its tile
  int first_channel;
  int end;                      // of the block's vectors
  TileCursor<kChannels> first;  // of the thread; `end` if it does not get any
  ThreadChannels<kChannels> channels;
};

template <VecChannels kChannels>
__device__ __forceinline__ TilePart<kChannels> tile_part(const ChannelsShape& extents,
                                                         const ChannelTiles& tiles) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto rank = static_cast<int>(blockIdx.y);
  const int first_channel = static_cast<int>(blockIdx.x) * tiles.channels;
  const int end = min((rank + 1) * tiles.block_vecs, tiles.vecs);
  const int own = rank * tiles.block_vecs + thread;
  const int vec = thread < tiles.stride && own < end ? own : end;
  const auto row = static_cast<int>(tiles.by_width.quotient(static_cast<uint32_t>(vec)));
  const int slot = vec - row * tiles.width;
  const int first_of_row = first_channel * static_cast<int>(extents.inner);
  return {rank,
          first_channel,
          end,
          {vec, slot, row * tiles.row_elements + first_of_row + slot * kVecSize},
          {slot, extents.inner}};
}

/// Adds up a thread's vectors and keeps them: vector d after the first one, at kept + d *
/// kVecSize.
template <VecChannels kChannels, class Policy>
__device__ __forceinline__ void sum_tile(const Policy& policy, const ChannelTiles& tiles,
                                         const TilePart<kChannels>& part,
                                         typename Policy::Element* kept, int kept_stride,
                                         ThreadSums<typename Policy::Sums>& own) {
  constexpr int kInFlight = Policy::Sums::kInFlight;
  typename Policy::Sums::template Operands<kVecSize> operands[kInFlight];
  bool live[kInFlight];
  int element[kInFlight];
  TileCursor<kChannels> at = part.first;
  const auto load = [&] {
    for (int k = 0; k < kInFlight; ++k) {
      live[k] = at.vec < part.end;
      element[k] = at.element;
      if (live[k]) operands[k] = policy.sums.template load<kVecSize>(element[k]);
      at.advance(tiles);
    }
  };
  load();  // before the constants, which are in flight as long
  for (int i = 0; i < kVecSize && live[0]; ++i) {
    own.constants[i] = policy.sums.constant(part.first_channel + part.channels.of(i),
                                            part.first.element + part.channels.begin(i));
  }
  if constexpr (kChannels == VecChannels::kConsecutive) {
    // One constant of a column for the warp: the constant of its first row.
    const int first_lane = static_cast<int>(threadIdx.x) % tiles.width;
    for (float& constant : own.constants) constant = __shfl_sync(kFullWarp, constant, first_lane);
  }
  int behind = 0;
  while (live[0]) {
    for (int k = 0; k < kInFlight; ++k) {
      if (!live[k]) continue;
      policy.sums.template add<kVecSize>(operands[k], own.constants, element[k], own.sums);
      if constexpr (Policy::kKept > 0) {
        policy.keep(operands[k], kept + (behind + k * tiles.stride) * kVecSize, kept_stride);
      }
      ++own.vecs;
    }
    behind = at.vec - part.first.vec;
    load();
  }
}

/// Applies `tables`, the constants of the tile's channels, to what sum_tile has kept.
template <VecChannels kChannels, class Policy>
__device__ __forceinline__ void apply_tile(
    const Policy& policy, const ChannelTiles& tiles, const TilePart<kChannels>& part,
    const typename Policy::Element* kept, int kept_stride,
    const float (&tables)[Policy::Apply::kTables][kMostTileChannels]) {
  using Apply = typename Policy::Apply;
  constexpr int kInFlight = Policy::kApplyInFlight;
  float constants[Apply::kTables][kVecSize] = {};
  if (part.first.vec < part.end) {
    for (int t = 0; t < Apply::kTables; ++t) {
      for (int i = 0; i < kVecSize; ++i) constants[t][i] = tables[t][part.channels.of(i)];
    }
  }
  for (TileCursor<kChannels> at = part.first; at.vec < part.end;) {
    typename Apply::Operands operands[kInFlight];
    bool live[kInFlight];
    int element[kInFlight];
    const int behind = at.vec - part.first.vec;
    for (int k = 0; k < kInFlight; ++k) {
      live[k] = at.vec < part.end;
      element[k] = at.element;
      if (live[k]) {
        operands[k] =
            policy.restored(kept + (behind + k * tiles.stride) * kVecSize, kept_stride, element[k]);
      }
      at.advance(tiles);
    }
    for (int k = 0; k < kInFlight; ++k) {
      if (live[k]) policy.apply.apply(operands[k], constants, element[k], VecAccess{});
    }
  }
}

/// The exchange and its readers are for kConsecutive.
template <class Policy, VecChannels kChannels, int kBlocksPerSm>
__global__ void __launch_bounds__(tile_threads(kBlocksPerSm), kBlocksPerSm)
    channel_tile_kernel(Policy policy, ChannelsShape extents, ChannelTiles tiles, uint64_t* words,
                        uint32_t* readers) {
#if __CUDA_ARCH__ == 900  // clusters; see channel_tile_plan.cuh
  using Sums = typename Policy::Sums;
  using Sum = typename Sums::Sum;
  using Finish = typename Policy::Finish;
  using Element = typename Policy::Element;
  constexpr int kThreads = tile_threads(kBlocksPerSm);
  constexpr int kQuantities = Sums::kQuantities;
  constexpr bool kIsColumns = kChannels == VecChannels::kConsecutive;
  constexpr bool kOneReader = Policy::kKept == 0;
  using Columns = ColumnSums<Sums, kThreads, kOneReader>;
  using BlockSums = std::conditional_t<kIsColumns, typename Columns::Shared,
                                       PlaneSums<kChannels, Sum, kQuantities, kThreads>>;
  extern __shared__ uint4 kept_words[];
  __shared__ BlockSums shared;
  __shared__ float tables[kConstants<Finish>][kMostTileChannels];
  const int thread = static_cast<int>(threadIdx.x);
  const auto part = tile_part<kChannels>(extents, tiles);
  const bool is_last = part.rank == tiles.blocks - 1;
  Element* const kept = reinterpret_cast<Element*>(kept_words) + thread * kVecSize;
  const int kept_stride = tiles.block_vecs * kVecSize;

  ThreadSums<Sums> own;
  sum_tile(policy, tiles, part, kept, kept_stride, own);
  typename Finish::Inputs inputs{};
  if (thread < tiles.channels) inputs = policy.finish.load(part.first_channel + thread);

  Sum total[kQuantities] = {};
  const auto finish = [&] {
    if (thread >= tiles.channels) return;
    float constants[kConstants<Finish>];
    policy.finish(part.first_channel + thread, inputs, total, is_last, constants);
    for (int t = 0; t < Finish::kTables; ++t) tables[t][thread] = constants[t];
  };
  const auto apply = [&] {
    if constexpr (Policy::kKept > 0) {
      __syncthreads();
      apply_tile(policy, tiles, part, kept, kept_stride, tables);
    }
  };
  if constexpr (kIsColumns) {
    Columns columns(shared, words, readers, tiles);
    columns.store(policy.sums, own, part.first_channel, part.rank);
    if (kOneReader && !is_last) return;
    columns.collect(total);
    finish();
    apply();
    columns.zero_words();
  } else {
    const auto cluster = cooperative_groups::this_cluster();
    sum_planes<kThreads>(policy.sums, own, part.channels, part.first_channel, extents, tiles,
                         shared);
    if (tiles.blocks > 1) cluster.sync();
    if (thread < tiles.channels) {
      for (int other = 0; other < tiles.blocks; ++other) {
        const Sum* const of_other = cluster.map_shared_rank(&shared.of_block[0][0], other);
        for (int q = 0; q < kQuantities; ++q) total[q] += of_other[q * kMostTileChannels + thread];
      }
    }
    finish();
    if (tiles.blocks > 1) cluster.barrier_arrive();
    apply();
    // The others may still read this block's sums.
    if (tiles.blocks > 1) cluster.barrier_wait();
  }
#else
  __trap();
#endif
}

template <class Policy, VecChannels kChannels, int kBlocksPerSm>
void launch_tile_kernel(CudaContext& context, const Policy& policy, const ChannelsShape& extents,
                        const ChannelTiles& tiles) {
  constexpr bool kIsColumns = kChannels == VecChannels::kConsecutive;
  const int64_t bytes = int64_t{tiles.block_vecs} * Policy::kKept * kVecSize *
                        static_cast<int64_t>(sizeof(typename Policy::Element));
  LaunchShape shape{{tiles.tiles, tiles.blocks}, tile_threads(kBlocksPerSm), bytes};
  // Blocks of columns wait for each other: all are placed. Where nothing is kept only the last one
  // waits, which is placed after all others.
  shape.is_cooperative = kIsColumns && Policy::kKept > 0;
  if (!kIsColumns && tiles.blocks > 1) shape.cluster = {1, tiles.blocks};
  const auto& exchange = context.state<InterBlockExchange>();
  launch_kernel(context.stream, channel_tile_kernel<Policy, kChannels, kBlocksPerSm>, shape, policy,
                extents, tiles, static_cast<uint64_t*>(exchange.words.data()),
                static_cast<uint32_t*>(exchange.readers.data()));
}

/// Tiles of plan_plane_tiles or plan_column_tiles.
template <class Policy>
void launch_channel_tiles(CudaContext& context, const Policy& policy, const ChannelsShape& extents,
                          const ChannelTiles& tiles) {
  // Without this, a warning where the code is not for sm_90a, which alone uses it.
  if constexpr (Policy::kKept > 0) static_assert(Policy::kApplyInFlight > 0);
  using Kind = VecChannels;
  const bool is_single = tiles.blocks_per_sm == 1;
  auto* launch = launch_tile_kernel<Policy, Kind::kConsecutive, 1>;
  if (tiles.kind == Kind::kOne) {
    launch = is_single ? launch_tile_kernel<Policy, Kind::kOne, 1>
                       : launch_tile_kernel<Policy, Kind::kOne, 2>;
    if constexpr (Policy::kKept == 2) {
      if (tiles.blocks_per_sm == 4) launch = launch_tile_kernel<Policy, Kind::kOne, 4>;
    }
  } else if (tiles.kind == Kind::kTwo) {
    launch = is_single ? launch_tile_kernel<Policy, Kind::kTwo, 1>
                       : launch_tile_kernel<Policy, Kind::kTwo, 2>;
  }
  launch(context, policy, extents, tiles);
}

}  // namespace bertha
