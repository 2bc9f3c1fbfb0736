#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/channels/channel_finish.cuh"
#include "kernels/cuda/channels/channel_tile_plan.cuh"
#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/channels/tile_mail.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pieces/reduce.cuh"
#include "kernels/cuda/pieces/shared_memory.cuh"

namespace bertha {

// Sums over all elements of each channel and what follows from them, in one launch that reads
// memory once.
//
// A tile is so many neighbouring channels that their elements of an image are whole octets. One or
// more blocks own a tile: every block adds up its part, keeps what it has read in shared memory,
// exchanges sums with the others, and works on what it kept. Blocks of images' planes meet in a
// cluster; blocks of columns, which are more than a cluster has, hand each other sums by the mailbox.
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

/// Which channels of the tile a thread's lanes belong to, the same at all of its places.
template <OctetChannels kChannels>
struct LaneChannels {
  int first;  // of lane 0
  int left;   // kTwo: lanes in `first`, which may be more than there are

  __device__ __forceinline__ LaneChannels(int64_t slot, int64_t inner) : first(0), left(kOctet) {
    if constexpr (kChannels == OctetChannels::kNeighbours) first = static_cast<int>(slot) * kOctet;
    if constexpr (kChannels == OctetChannels::kTwo) {
      const int before = static_cast<int>(slot) * kOctet;
      first = before / static_cast<int>(inner);
      left = (first + 1) * static_cast<int>(inner) - before;
    }
  }
  __device__ __forceinline__ int of(int lane) const {
    if constexpr (kChannels == OctetChannels::kNeighbours) return first + lane;
    return lane < left ? first : first + 1;
  }
  /// The first lane in the channel of `lane`.
  __device__ __forceinline__ int begin(int lane) const {
    if constexpr (kChannels == OctetChannels::kNeighbours) return lane;
    return lane < left ? 0 : left;
  }
};

/// What the threads of a block leave for each other.
template <OctetChannels kChannels, class Sum, int kQuantities, int kThreads>
struct TileSums {
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr bool kTwo = kChannels == OctetChannels::kTwo;

  Sum of_block[kQuantities][kMostTileChannels];
  Sum of_warps[kTwo ? kQuantities : 1][kTwo ? kWarps : 1];
  union {
    Sum of_warp[kWarps][kQuantities][kTwo ? 1 : kMostTileChannels];
    Sum of_thread[kTwo ? kQuantities : 1][2][kTwo ? kThreads : 1];
  };
};

/// Adds up the block's threads: shared.of_block[quantity][channel of the tile]. `sums` are a
/// thread's, of `octets` places. All threads call it; a barrier stands at its end.
template <int kThreads, OctetChannels kChannels, class Sums>
__device__ __forceinline__ void sum_block(
    const Sums& policy, const float (&sums)[Sums::kQuantities][kOctet],
    const float (&constants)[kOctet], const LaneChannels<kChannels>& lanes, int octets,
    int64_t first_channel, const ChannelExtents& extents, const ChannelTiles& tiles,
    TileSums<kChannels, typename Sums::Sum, Sums::kQuantities, kThreads>& shared) {
  using Sum = typename Sums::Sum;
  constexpr int kQuantities = Sums::kQuantities;
  constexpr int kWarps = kThreads / kWarpThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  if constexpr (kChannels == OctetChannels::kSame) {
    float of_thread[kQuantities];
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) of_thread[q] = octet_sum(sums[q]);
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      Sum total{0};
      if (octets > 0) {
        total = policy.total(q, of_thread, octets * kOctet, constants[0], first_channel);
      }
      total = block_sum(total, &shared.of_warp[0][0][0]);
      if (thread == 0) shared.of_block[q][0] = total;
    }
  } else if constexpr (kChannels == OctetChannels::kNeighbours) {
    // A power of two of neighbouring threads share a row. Those of one column measure from the same
    // constant; two steps over them hand each thread two of its eight channels.
    static_assert(kQuantities == 2);
    const int width = tiles.width;
    float values[kOctet * kQuantities];
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) values[i * kQuantities + q] = sums[q][i];
    }
    share_sums<kOctet * kQuantities / 2>(values, lane, kWarpThreads / 2);
    share_sums<kOctet * kQuantities / 4>(values, lane, kWarpThreads / 4);
    octets += __shfl_xor_sync(kFullWarp, octets, kWarpThreads / 2);
    octets += __shfl_xor_sync(kFullWarp, octets, kWarpThreads / 4);
    for (int step = kWarpThreads / 8; step >= width; step /= 2) {
#pragma unroll
      for (int i = 0; i < 2 * kQuantities; ++i) {
        values[i] += __shfl_xor_sync(kFullWarp, values[i], step);
      }
      octets += __shfl_xor_sync(kFullWarp, octets, step);
    }
    const int pair = lane / 8 * 2;  // the first of the thread's two channels
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float constant = constants[i];
#pragma unroll
      for (int other = 2; other < kOctet; other += 2) {
        if (pair == other) constant = constants[other + i];
      }
      const float of_thread[kQuantities] = {values[i * kQuantities], values[i * kQuantities + 1]};
      if (lane % 8 >= width) continue;
      const int channel = lane % 8 * kOctet + pair + i;
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
        shared.of_warp[warp][q][channel] =
            octets > 0 ? policy.total(q, of_thread, octets, constant, first_channel + channel)
                       : Sum{0};
      }
    }
    __syncthreads();
    for (int i = thread; i < kQuantities * tiles.channels; i += kThreads) {
      const int q = i / tiles.channels;
      const int channel = i - q * tiles.channels;
      Sum total{0};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += shared.of_warp[w][q][channel];
      shared.of_block[q][channel] = total;
    }
  } else {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float of_thread[kQuantities] = {};
      int count = 0;
      float constant = 0.0f;
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        if ((i < lanes.left) != (part == 0)) continue;
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) of_thread[q] += sums[q][i];
        ++count;
        constant = constants[i];
      }
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
        Sum total{0};
        if (octets > 0 && count > 0) {
          total = policy.total(q, of_thread, octets * count, constant,
                               first_channel + lanes.first + part);
        }
        shared.of_thread[q][part][thread] = total;
      }
    }
    __syncthreads();
    // As many warps to a channel as there are, each for some places of its slots.
    const int inner = static_cast<int>(extents.inner);
    const int width = tiles.width;
    const int rows = tiles.turn / width;
    const int beside = kWarps / tiles.channels;
    const int channel = warp / beside;
    if (channel < tiles.channels) {
      const int first_slot = channel * inner / kOctet;
      const int slots = (channel * inner + inner - 1) / kOctet - first_slot + 1;
      Sum total[kQuantities] = {};
      for (int i = warp % beside * kWarpThreads + lane; i < slots * rows;
           i += beside * kWarpThreads) {
        const int row = i / slots;
        const int slot = first_slot + (i - row * slots);
        const int part = slot * kOctet < channel * inner ? 1 : 0;
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) {
          total[q] += shared.of_thread[q][part][row * width + slot];
        }
      }
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
        total[q] = warp_sum(total[q]);
        if (lane == 0) shared.of_warps[q][warp] = total[q];
      }
    }
    __syncthreads();
    if (thread < kQuantities * tiles.channels) {
      const int q = thread / tiles.channels;
      const int own = thread - q * tiles.channels;
      Sum total{0};
      for (int w = own * beside; w < (own + 1) * beside; ++w) total += shared.of_warps[q][w];
      shared.of_block[q][own] = total;
    }
  }
  __syncthreads();
}

/// Blocks of a tile follow each other. The mailbox and its readers are for kNeighbours.
template <class Policy, OctetChannels kChannels, int kBeside>
__global__ void __launch_bounds__(kTileThreads / kBeside, kBeside)
    channel_tile_kernel(Policy policy, ChannelExtents extents, ChannelTiles tiles,
                        uint64_t* mailbox, uint32_t* readers) {
  using Sums = typename Policy::Sums;
  using Map = typename Policy::Map;
  using Sum = typename Sums::Sum;
  using Finish = typename Policy::Finish;
  using Element = typename Policy::Element;
  constexpr int kThreads = kTileThreads / kBeside;
  constexpr int kQuantities = Sums::kQuantities;
  constexpr bool kAcrossGrid = kChannels == OctetChannels::kNeighbours;
  constexpr LaneRange kAll{0, kOctet};
  extern __shared__ uint4 kept_words[];
  __shared__ TileSums<kChannels, Sum, kQuantities, kThreads> shared;
  __shared__ float tables[kConstants<Finish>][kMostTileChannels];
  const int thread = static_cast<int>(threadIdx.x);
  const auto tile = static_cast<int>(blockIdx.x / static_cast<unsigned>(tiles.blocks));
  const auto rank = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles.blocks));
  const int first_channel = tile * tiles.channels;

  const int begin = rank * tiles.of_block;
  const int end = begin + tiles.of_block < tiles.places ? begin + tiles.of_block : tiles.places;
  TilePlace first;
  first.place = thread < tiles.turn && begin + thread < end ? begin + thread : end;
  const int row = first.place / tiles.width;
  first.slot = first.place - row * tiles.width;
  first.element = row * tiles.row_elements + first_channel * static_cast<int>(extents.inner) +
                  first.slot * kOctet;
  const LaneChannels<kChannels> lanes(first.slot, extents.inner);
  // What this thread keeps of a place that lies d places behind its first one: kept + d * kOctet.
  Element* const kept = reinterpret_cast<Element*>(kept_words) + thread * kOctet;
  const int kept_stride = tiles.of_block * kOctet;

  typename Finish::Inputs inputs{};
  {
    constexpr int kInFlight = Sums::kInFlight;
    float sums[kQuantities][kOctet] = {};
    float constants[kOctet] = {};
    int octets = 0;
    typename Sums::template Operands<kOctet> operands[kInFlight];
    bool live[kInFlight];
    int element[kInFlight];
    TilePlace at = first;
    const auto load = [&] {
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        live[k] = at.place < end;
        element[k] = at.element;
        if (live[k]) operands[k] = policy.sums.template load<kOctet>(element[k], kAll, true);
        at.advance(tiles);
      }
    };
    int behind = 0;
    load();  // before the constants, which are on their way as long
    if (first.place < end) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        constants[i] =
            policy.sums.constant(first_channel + lanes.of(i), first.element + lanes.begin(i));
      }
    }
    if constexpr (kAcrossGrid) {  // one constant of a column for the warp: that of its first row
#pragma unroll
      for (int i = 0; i < kOctet; ++i) {
        constants[i] = __shfl_sync(kFullWarp, constants[i], thread % tiles.width);
      }
    }
    while (live[0]) {
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (!live[k]) continue;
        policy.sums.template add<kOctet>(operands[k], constants, element[k], kAll, true, sums);
        if constexpr (Policy::kKept > 0) {
          policy.keep(operands[k], kept + (behind + k * tiles.turn) * kOctet, kept_stride);
        }
        ++octets;
      }
      behind = at.place - first.place;
      load();
    }
    if (thread < tiles.channels) inputs = policy.finish.load(first_channel + thread);
    sum_block<kThreads>(policy.sums, sums, constants, lanes, octets, first_channel, extents, tiles,
                        shared);
  }

  Sum total[kQuantities] = {};
  using Mail = TileMail<Sum, kQuantities, kThreads>;
  Mail mail(mailbox, readers, tile, tiles.blocks);
  const bool is_last_warp = thread / kWarpThreads == kThreads / kWarpThreads - 1;
  if constexpr (kAcrossGrid) {
    Sum* const shares = &shared.of_warp[0][0][0];
    if (thread < Mail::kPairs) mail.leave(rank, (&shared.of_block[0][0])[thread]);
    shares[thread] = mail.share();
    __syncthreads();
    if (is_last_warp) mail.count_block();
    if (thread < tiles.channels) {
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
#pragma unroll
        for (int group = 0; group < Mail::kGroups; ++group) {
          total[q] += shares[group * Mail::kPairs + q * kMostTileChannels + thread];
        }
      }
    }
  } else {
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
    policy.finish(first_channel + thread, inputs, total, rank == 0, constants);
#pragma unroll
    for (int t = 0; t < Finish::kTables; ++t) tables[t][thread] = constants[t];
  }
  if constexpr (!kAcrossGrid) {
    if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_arrive();
  }

  if constexpr (Policy::kKept > 0) {
    constexpr int kInFlight = Policy::kMapInFlight;
    __syncthreads();
    float constants[Map::kTables][kOctet] = {};
    if (first.place < end) {
#pragma unroll
      for (int t = 0; t < Map::kTables; ++t) {
#pragma unroll
        for (int i = 0; i < kOctet; ++i) constants[t][i] = tables[t][lanes.of(i)];
      }
    }
    for (TilePlace at = first; at.place < end;) {
      typename Map::Operands operands[kInFlight] = {};
      bool live[kInFlight];
      int element[kInFlight];
      const int behind = at.place - first.place;
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        live[k] = at.place < end;
        element[k] = at.element;
        if (live[k]) {
          operands[k] =
              policy.restored(kept + (behind + k * tiles.turn) * kOctet, kept_stride, element[k]);
        }
        at.advance(tiles);
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (live[k]) policy.map.apply(operands[k], constants, element[k], kAll, true);
      }
    }
  }
  if constexpr (kAcrossGrid) {
    if (is_last_warp) mail.leave_zeros();
  } else {  // the others may still read this block's sums
    if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_wait();
  }
}

template <class Policy, OctetChannels kChannels, int kBeside>
void launch_channel_tiles_of(const CudaContext& context, const Policy& policy,
                             const ChannelExtents& extents, const ChannelTiles& tiles) {
  const int64_t bytes = int64_t{tiles.of_block} * Policy::kKept * kOctet *
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
                                       context.mailbox.words(), context.mailbox.readers()));
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
