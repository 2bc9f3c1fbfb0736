#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/channels/channel_finish.cuh"
#include "kernels/cuda/channels/channel_tile_plan.cuh"
#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/channels/tile_sums.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// Sums over all elements of each channel and what follows from them, in one launch that reads
// memory once.
//
// A tile is so many neighbouring channels that their elements of an image are whole octets. One or
// more blocks own a tile: every block adds up its part, keeps what it has read in shared memory,
// exchanges sums with the others, and works on what it kept. Blocks of images' planes meet in a
// cluster; blocks of columns, which are more than a cluster has, hand each other sums by the exchange.
// No tile waits for another. Threads, warps and blocks add in an order that only the extents and the
// device decide.
//
// What bounds them is not memory alone but the round trips that follow each other: elements, sums,
// results. Words that carry their arrival, instead of a barrier of the grid between a fence and
// another load: channels last, forward and backward, 15.2 -> 13.1 and 16.8 -> 14.6 us at 512 x 7 x 7,
// 19.0 -> 17.6 and 22.8 -> 20.8 at 256 x 14 x 14.
//
// A Policy has
//   Element, kKept                     the io type, and how many octets of it are kept at a place
//   sums                               as in channel_sums.cuh
//   finish                             as in channel_finish.cuh
//   keep(operands of sums, to, stride) keeps octets at `to`, `stride` elements apart
//   restored(from, stride, element)    operands of map, loading those that were not kept
//   map, kMapInFlight                  as in channel_map.cuh; unused where kKept is 0
// and is passed to the kernel by value.

/// Where a thread is in its tile.
struct TilePlace {
  int place;
  int slot;  // within the row
  int element;

  __device__ __forceinline__ void advance(const ChannelTiles& tiles) {
    place += tiles.turn;
    slot += tiles.step_slots;
    element += tiles.step_elements;
    if (slot >= tiles.width) {
      slot -= tiles.width;
      element += tiles.wrap_elements;
    }
  }
};

/// What a block has of its tile, and where one of its threads begins. Blocks of a tile follow each
/// other.
template <OctetChannels kChannels>
struct TilePart {
  int tile;
  int rank;  // of the block in its tile
  int first_channel;
  int end;          // of the block's places
  TilePlace first;  // of the thread; at `end` where it has none
  LaneChannels<kChannels> lanes;

  __device__ __forceinline__ TilePart(const ChannelExtents& extents, const ChannelTiles& tiles)
      : tile(static_cast<int>(blockIdx.x / static_cast<unsigned>(tiles.blocks))),
        rank(static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles.blocks))),
        first_channel(tile * tiles.channels),
        end(min((rank + 1) * tiles.of_block, tiles.places)),
        first(first_place(extents, tiles)),
        lanes(first.slot, extents.inner) {}

 private:
  __device__ __forceinline__ TilePlace first_place(const ChannelExtents& extents,
                                                   const ChannelTiles& tiles) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int own = rank * tiles.of_block + thread;
    const int place = thread < tiles.turn && own < end ? own : end;
    const int row = place / tiles.width;
    const int slot = place - row * tiles.width;
    return {place, slot,
            row * tiles.row_elements + first_channel * static_cast<int>(extents.inner) +
                slot * kVecSize};
  }
};

/// What a thread measures its lanes from.
template <OctetChannels kChannels, class Sums>
__device__ __forceinline__ void load_constants(const Sums& policy, const ChannelTiles& tiles,
                                               const TilePart<kChannels>& part,
                                               float (&constants)[kVecSize]) {
  if (part.first.place < part.end) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      constants[i] = policy.constant(part.first_channel + part.lanes.of(i),
                                     part.first.element + part.lanes.begin(i));
    }
  }
  if constexpr (kChannels == OctetChannels::kNeighbours) {
    // One constant of a column for the warp: that of its first row.
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      constants[i] =
          __shfl_sync(kFullWarp, constants[i], static_cast<int>(threadIdx.x) % tiles.width);
    }
  }
}

/// Adds up a thread's places and keeps them: what lies d places behind the first one, at kept + d *
/// kVecSize.
template <OctetChannels kChannels, class Policy>
__device__ __forceinline__ void sum_places(const Policy& policy, const ChannelTiles& tiles,
                                           const TilePart<kChannels>& part,
                                           typename Policy::Element* kept, int kept_stride,
                                           ThreadSums<typename Policy::Sums>& own) {
  constexpr int kInFlight = Policy::Sums::kInFlight;
  constexpr LaneRange kAll{0, kVecSize};
  typename Policy::Sums::template Operands<kVecSize> operands[kInFlight];
  bool live[kInFlight];
  int element[kInFlight];
  TilePlace at = part.first;
  const auto load = [&] {
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      live[k] = at.place < part.end;
      element[k] = at.element;
      if (live[k]) operands[k] = policy.sums.template load<kVecSize>(element[k], kAll, true);
      at.advance(tiles);
    }
  };
  int behind = 0;
  load();  // before the constants, which are on their way as long
  load_constants(policy.sums, tiles, part, own.constants);
  while (live[0]) {
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (!live[k]) continue;
      policy.sums.template add<kVecSize>(operands[k], own.constants, element[k], kAll, true,
                                         own.sums);
      if constexpr (Policy::kKept > 0) {
        policy.keep(operands[k], kept + (behind + k * tiles.turn) * kVecSize, kept_stride);
      }
      ++own.octets;
    }
    behind = at.place - part.first.place;
    load();
  }
}

/// Works on what sum_places has kept. `tables` has the constants of the tile's channels.
template <OctetChannels kChannels, class Policy>
__device__ __forceinline__ void map_places(
    const Policy& policy, const ChannelTiles& tiles, const TilePart<kChannels>& part,
    const typename Policy::Element* kept, int kept_stride,
    const float (&tables)[Policy::Map::kTables][kMostTileChannels]) {
  using Map = typename Policy::Map;
  constexpr int kInFlight = Policy::kMapInFlight;
  constexpr LaneRange kAll{0, kVecSize};
  float constants[Map::kTables][kVecSize] = {};
  if (part.first.place < part.end) {
#pragma unroll
    for (int t = 0; t < Map::kTables; ++t) {
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) constants[t][i] = tables[t][part.lanes.of(i)];
    }
  }
  for (TilePlace at = part.first; at.place < part.end;) {
    typename Map::Operands operands[kInFlight] = {};
    bool live[kInFlight];
    int element[kInFlight];
    const int behind = at.place - part.first.place;
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      live[k] = at.place < part.end;
      element[k] = at.element;
      if (live[k]) {
        operands[k] =
            policy.restored(kept + (behind + k * tiles.turn) * kVecSize, kept_stride, element[k]);
      }
      at.advance(tiles);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (live[k]) policy.map.apply(operands[k], constants, element[k], kAll, true);
    }
  }
}

/// The exchange and its readers are for kNeighbours.
template <class Policy, OctetChannels kChannels, int kBeside>
__global__ void __launch_bounds__(kTileThreads / kBeside, kBeside)
    channel_tile_kernel(Policy policy, ChannelExtents extents, ChannelTiles tiles,
                        uint64_t* exchange, uint32_t* readers) {
  using Sums = typename Policy::Sums;
  using Sum = typename Sums::Sum;
  using Finish = typename Policy::Finish;
  using Element = typename Policy::Element;
  constexpr int kThreads = kTileThreads / kBeside;
  constexpr int kQuantities = Sums::kQuantities;
  constexpr bool kIsColumns = kChannels == OctetChannels::kNeighbours;
  using BlockSums = std::conditional_t<kIsColumns, ColumnSums<Sum, kQuantities, kThreads>,
                                       PlaneSums<kChannels, Sum, kQuantities, kThreads>>;
  extern __shared__ uint4 kept_words[];
  __shared__ BlockSums shared;
  __shared__ float tables[kConstants<Finish>][kMostTileChannels];
  const int thread = static_cast<int>(threadIdx.x);
  const TilePart<kChannels> part(extents, tiles);
  Element* const kept = reinterpret_cast<Element*>(kept_words) + thread * kVecSize;
  const int kept_stride = tiles.of_block * kVecSize;

  ThreadSums<Sums> own;
  sum_places(policy, tiles, part, kept, kept_stride, own);
  typename Finish::Inputs inputs{};
  if (thread < tiles.channels) inputs = policy.finish.load(part.first_channel + thread);

  TileExchange<Sum, kQuantities, kThreads> mail(exchange, readers, part.tile, tiles.blocks);
  Sum total[kQuantities] = {};
  if constexpr (kIsColumns) {
    leave_columns<kThreads>(policy.sums, own, part.first_channel, tiles, part.rank, mail, shared);
    collect_columns(mail, tiles, shared, total);
  } else {
    sum_planes<kThreads>(policy.sums, own, part.lanes, part.first_channel, extents, tiles, shared);
    if (tiles.blocks > 1) cooperative_groups::this_cluster().sync();
    if (thread < tiles.channels) {
      for (int other = 0; other < tiles.blocks; ++other) {
        const Sum* const of_other =
            cooperative_groups::this_cluster().map_shared_rank(&shared.of_block[0][0], other);
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) total[q] += of_other[q * kMostTileChannels + thread];
      }
    }
  }
  if (thread < tiles.channels) {
    float constants[kConstants<Finish>];
    policy.finish(part.first_channel + thread, inputs, total, part.rank == 0, constants);
#pragma unroll
    for (int t = 0; t < Finish::kTables; ++t) tables[t][thread] = constants[t];
  }
  if constexpr (!kIsColumns) {
    if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_arrive();
  }
  if constexpr (Policy::kKept > 0) {
    __syncthreads();
    map_places(policy, tiles, part, kept, kept_stride, tables);
  }
  if constexpr (kIsColumns) {
    mail.leave_zeros();
  } else {  // the others may still read this block's sums
    if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_wait();
  }
}

template <class Policy, OctetChannels kChannels, int kBeside>
void launch_channel_tiles_of(const CudaContext& context, const Policy& policy,
                             const ChannelExtents& extents, const ChannelTiles& tiles) {
  const int64_t bytes = int64_t{tiles.of_block} * Policy::kKept * kVecSize *
                        static_cast<int64_t>(sizeof(typename Policy::Element));
  const int64_t blocks = int64_t{tiles.tiles} * tiles.blocks;
  auto* const kernel = channel_tile_kernel<Policy, kChannels, kBeside>;
  allow_shared_bytes(kernel, bytes);
  cudaLaunchAttribute meeting{};
  if constexpr (kChannels == OctetChannels::kNeighbours) {
    meeting.id = cudaLaunchAttributeCooperative;  // blocks wait for each other: all are placed
    meeting.val.cooperative = 1;
  } else {
    meeting.id = cudaLaunchAttributeClusterDimension;
    meeting.val.clusterDim.x = static_cast<unsigned>(tiles.blocks);
    meeting.val.clusterDim.y = meeting.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kTileThreads / kBeside);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = context.stream;
  config.attrs = &meeting;
  config.numAttrs = kChannels == OctetChannels::kNeighbours || tiles.blocks > 1 ? 1 : 0;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, policy, extents, tiles,
                                       context.exchange.words(), context.exchange.readers()));
}

/// Tiles of plan_plane_tiles.
template <class Policy>
void launch_plane_tiles(const CudaContext& context, const Policy& policy,
                        const ChannelExtents& extents, const ChannelTiles& tiles) {
  using Kind = OctetChannels;
  const bool is_same = tiles.kind == Kind::kSame;
  if (is_same && tiles.beside == 1) {
    launch_channel_tiles_of<Policy, Kind::kSame, 1>(context, policy, extents, tiles);
  } else if (is_same) {
    launch_channel_tiles_of<Policy, Kind::kSame, 2>(context, policy, extents, tiles);
  } else if (tiles.beside == 1) {
    launch_channel_tiles_of<Policy, Kind::kTwo, 1>(context, policy, extents, tiles);
  } else {
    launch_channel_tiles_of<Policy, Kind::kTwo, 2>(context, policy, extents, tiles);
  }
}

/// Tiles of plan_channel_tiles.
template <class Policy>
void launch_channel_tiles(const CudaContext& context, const Policy& policy,
                          const ChannelExtents& extents, const ChannelTiles& tiles) {
  if (tiles.kind != OctetChannels::kNeighbours) {
    return launch_plane_tiles(context, policy, extents, tiles);
  }
  launch_channel_tiles_of<Policy, OctetChannels::kNeighbours, 1>(context, policy, extents, tiles);
}

}  // namespace bertha
