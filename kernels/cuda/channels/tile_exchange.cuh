#pragma once

#include "kernels/cuda/channels/channel_tile_plan.cuh"
#include "kernels/cuda/common/inter_block_exchange.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

/// How the blocks of a tile, spread over a grid that all runs at once, hand each other their sums:
///
///   words [blocks][kPairs]  block r leaves its sums in words[r]; all blocks of the tile read all of
///                           them
///   readers                 a block counts itself here behind a barrier, when each of its threads has
///                           what it looked for; the last one leaves zeros in the words, and its count
///                           wraps around to zero
///
/// so that every launch finds zeros, also one that a graph repeats.
template <class Sum, int kQuantities, int kThreads>
class TileExchange {
 public:
  static constexpr int kPairs = kQuantities * kMostTileChannels;
  static constexpr int kGroups = kThreads / kPairs;  // of threads that share the blocks of a tile
  static_assert(kThreads % kPairs == 0 && kPairs <= kExchangeWords);

  __device__ __forceinline__ TileExchange(uint64_t* exchange, uint32_t* readers, int tile,
                                          int blocks)
      : words_(exchange + tile * blocks * kPairs), readers_(readers + tile), blocks_(blocks) {}

  __device__ __forceinline__ void leave(int rank, int pair, Sum of_block) const {
    leave_word(words_ + rank * kPairs + pair, word_of(of_block));
  }

  /// A group's share of a pair's sum: every kGroups-th block.
  __device__ __forceinline__ Sum share(int pair, int group) const {
    // Measured: 2 and 12 are up to 4 % slower; 12 looks of all threads disturb blocks that still read.
    constexpr int kLooks = 4;
    const uint64_t* const of_pair = words_ + pair;
    Sum sum{0};
    for (int block = group; block < blocks_; block += kLooks * kGroups) {
      uint64_t found[kLooks];
#pragma unroll
      for (int k = 0; k < kLooks; ++k) {
        const int of = block + k * kGroups;
        found[k] = of < blocks_ ? look_at(of_pair + of * kPairs) : 0;
      }
#pragma unroll
      for (int k = 0; k < kLooks; ++k) {
        const int of = block + k * kGroups;
        if (of < blocks_) sum += number_of<Sum>(awaited(of_pair + of * kPairs, found[k]));
      }
    }
    return sum;
  }

  /// When all threads of the block have their shares.
  __device__ __forceinline__ void count_block() {
    if (is_last_warp() && lane() == 0) {
      counted_before_ = atomicInc(readers_, static_cast<unsigned>(blocks_) - 1);
    }
  }
  /// At the end, when the count is there without waiting.
  __device__ __forceinline__ void leave_zeros() const {
    if (!is_last_warp()) return;
    const uint32_t before = __shfl_sync(kFullWarp, counted_before_, 0);
    if (before + 1 != static_cast<unsigned>(blocks_)) return;
    for (int i = 2 * lane(); i < blocks_ * kPairs; i += 2 * kWarpThreads) {
      *reinterpret_cast<uint4*>(words_ + i) = uint4{};
    }
  }

 private:
  __device__ __forceinline__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  __device__ __forceinline__ static bool is_last_warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads == kThreads / kWarpThreads - 1;
  }

  uint64_t* words_;
  uint32_t* readers_;
  int blocks_;
  uint32_t counted_before_ = 0;
};

}  // namespace bertha
