#pragma once

#include "kernels/cuda/channels/channel_tile_plan.cuh"
#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/channels/tile_exchange.cuh"
#include "kernels/cuda/common/reduce.cuh"

namespace bertha {

// Sums of the threads of channel_tiles.cuh: of a block's in tiles of planes, of all blocks of a tile in
// tiles of columns. A `Sums` is a policy of channel_sums.cuh.

/// Which channels of the tile a thread's lanes belong to, the same at all of its places.
template <OctetChannels kChannels>
struct LaneChannels {
  int first;  // of lane 0
  int left;   // kTwo: lanes in `first`, which may be more than there are

  __device__ __forceinline__ LaneChannels(int64_t slot, int64_t inner) : first(0), left(kVecSize) {
    if constexpr (kChannels == OctetChannels::kNeighbours)
      first = static_cast<int>(slot) * kVecSize;
    if constexpr (kChannels == OctetChannels::kTwo) {
      const int before = static_cast<int>(slot) * kVecSize;
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

/// What a thread has added up, of so many octets, and what it measured each lane from.
template <class Sums>
struct ThreadSums {
  float sums[Sums::kQuantities][kVecSize] = {};
  float constants[kVecSize] = {};
  int octets = 0;
};

/// What the threads of a block leave for each other in tiles of planes.
template <OctetChannels kChannels, class Sum, int kQuantities, int kThreads>
struct PlaneSums {
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr bool kTwo = kChannels == OctetChannels::kTwo;

  Sum of_block[kQuantities][kMostTileChannels];
  Sum of_warps[kTwo ? kQuantities : 1][kTwo ? kWarps : 1];
  union {
    Sum of_warp[kWarps];
    Sum of_thread[kTwo ? kQuantities : 1][2][kTwo ? kThreads : 1];
  };
};

/// Adds up the block's threads, tiles of planes: shared.of_block[quantity][channel of the tile]. All
/// threads call it; a barrier stands at its end.
template <int kThreads, OctetChannels kChannels, class Sums>
__device__ __forceinline__ void sum_planes(
    const Sums& policy, const ThreadSums<Sums>& own, const LaneChannels<kChannels>& lanes,
    int64_t first_channel, const ChannelExtents& extents, const ChannelTiles& tiles,
    PlaneSums<kChannels, typename Sums::Sum, Sums::kQuantities, kThreads>& shared) {
  using Sum = typename Sums::Sum;
  constexpr int kQuantities = Sums::kQuantities;
  constexpr int kWarps = kThreads / kWarpThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  if constexpr (kChannels == OctetChannels::kSame) {
    float of_thread[kQuantities];
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) of_thread[q] = octet_sum(own.sums[q]);
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      Sum total{0};
      if (own.octets > 0) {
        total = policy.total(q, of_thread, own.octets * kVecSize, own.constants[0], first_channel);
      }
      total = block_sum(total, shared.of_warp);
      if (thread == 0) shared.of_block[q][0] = total;
    }
  } else {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      float of_thread[kQuantities] = {};
      int count = 0;
      float constant = 0.0f;
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        if ((i < lanes.left) != (part == 0)) continue;
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) of_thread[q] += own.sums[q][i];
        ++count;
        constant = own.constants[i];
      }
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) {
        Sum total{0};
        if (own.octets > 0 && count > 0) {
          total = policy.total(q, of_thread, own.octets * count, constant,
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
      const int first_slot = channel * inner / kVecSize;
      const int slots = (channel * inner + inner - 1) / kVecSize - first_slot + 1;
      Sum total[kQuantities] = {};
      for (int i = warp % beside * kWarpThreads + lane; i < slots * rows;
           i += beside * kWarpThreads) {
        const int row = i / slots;
        const int slot = first_slot + (i - row * slots);
        const int part = slot * kVecSize < channel * inner ? 1 : 0;
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
      const int of = thread - q * tiles.channels;
      Sum total{0};
      for (int w = of * beside; w < (of + 1) * beside; ++w) total += shared.of_warps[q][w];
      shared.of_block[q][of] = total;
    }
  }
  __syncthreads();
}

/// What the threads of a block leave for each other in tiles of columns.
template <class Sum, int kQuantities, int kThreads>
union ColumnSums {
  Sum of_warps[kThreads / kWarpThreads][kQuantities][kMostTileChannels];
  Sum of_groups[TileExchange<Sum, kQuantities, kThreads>::kGroups][kQuantities][kMostTileChannels];
};

/// Adds up the block's threads, tiles of columns, and leaves the sums in the mail. A power of two of
/// neighbouring threads share a row; those of one column measure from the same constant. All threads
/// call it; a barrier stands at its end.
template <int kThreads, class Sums>
__device__ __forceinline__ void leave_columns(
    const Sums& policy, const ThreadSums<Sums>& own, int64_t first_channel,
    const ChannelTiles& tiles, int rank,
    const TileExchange<typename Sums::Sum, Sums::kQuantities, kThreads>& mail,
    ColumnSums<typename Sums::Sum, Sums::kQuantities, kThreads>& shared) {
  using Sum = typename Sums::Sum;
  constexpr int kQuantities = Sums::kQuantities;
  static_assert(kQuantities == 2);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpThreads;
  const int width = tiles.width;
  float values[kVecSize * kQuantities];
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) values[i * kQuantities + q] = own.sums[q][i];
  }
  // Two steps over the warp's rows hand each thread two of its eight channels.
  share_sums<kVecSize * kQuantities / 2>(values, lane, kWarpThreads / 2);
  share_sums<kVecSize * kQuantities / 4>(values, lane, kWarpThreads / 4);
  int octets = own.octets;
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
    float constant = own.constants[i];
#pragma unroll
    for (int other = 2; other < kVecSize; other += 2) {
      if (pair == other) constant = own.constants[other + i];
    }
    const float of_thread[kQuantities] = {values[i * kQuantities], values[i * kQuantities + 1]};
    if (lane % 8 >= width) continue;
    const int channel = lane % 8 * kVecSize + pair + i;
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
      shared.of_warps[thread / kWarpThreads][q][channel] =
          octets > 0 ? policy.total(q, of_thread, octets, constant, first_channel + channel)
                     : Sum{0};
    }
  }
  __syncthreads();
  const int q = thread / kMostTileChannels;
  const int channel = thread % kMostTileChannels;
  if (q < kQuantities && channel < tiles.channels) {
    Sum total{0};
#pragma unroll
    for (int w = 0; w < kThreads / kWarpThreads; ++w) total += shared.of_warps[w][q][channel];
    mail.leave(rank, thread, total);
  }
  __syncthreads();
}

/// The tile's sums of channel threadIdx.x, in the first tiles.channels threads. All threads call it.
template <class Sum, int kQuantities, int kThreads>
__device__ __forceinline__ void collect_columns(TileExchange<Sum, kQuantities, kThreads>& mail,
                                                const ChannelTiles& tiles,
                                                ColumnSums<Sum, kQuantities, kThreads>& shared,
                                                Sum (&total)[kQuantities]) {
  using Mail = TileExchange<Sum, kQuantities, kThreads>;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / Mail::kPairs;
  const int pair = thread % Mail::kPairs;
  const int channel = thread % kMostTileChannels;
  if (channel < tiles.channels) {
    shared.of_groups[group][pair / kMostTileChannels][channel] = mail.share(pair, group);
  }
  __syncthreads();
  mail.count_block();
  if (thread >= tiles.channels) return;
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
#pragma unroll
    for (int g = 0; g < Mail::kGroups; ++g) total[q] += shared.of_groups[g][q][thread];
  }
}

}  // namespace bertha
