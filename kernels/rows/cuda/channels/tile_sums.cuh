#pragma once

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/reduce.cuh"
#include "kernels/rows/cuda/channels/channel_sums.cuh"
#include "kernels/rows/cuda/channels/channel_tile_plan.cuh"

namespace bertha {

// Block reductions of channel_tiles.cuh, and the exchange between the blocks of a tile of columns.
// A `Sums` is a policy of channel_sums.cuh.

inline constexpr int kExchangeWords = 128;  // per SM

/// 64-bit flag-packed values by which blocks of a kernel exchange numbers, and counts of the blocks
/// that have read some of them. All zero between kernels of the stream: the last reader of a value
/// resets it.
struct InterBlockExchange {
  explicit InterBlockExchange(CudaContext& context)
      : words(context.device.allocate(context.sm_count * kExchangeWords * 8)),
        readers(context.device.allocate(context.sm_count * 4)) {}

  Buffer words;    // u64, kExchangeWords per SM
  Buffer readers;  // u32, one per SM
};

/// Which channels of the tile a thread's vectors belong to, the same for all of them.
template <VecChannels kChannels>
struct ThreadChannels {
  int first;     // of element 0
  int in_first;  // kTwo: elements in `first`, which may be more than there are

  __device__ __forceinline__ ThreadChannels(int slot, int64_t inner)
      : first(0), in_first(kVecSize) {
    if constexpr (kChannels == VecChannels::kConsecutive) first = slot * kVecSize;
    if constexpr (kChannels == VecChannels::kTwo) {
      const int before = slot * kVecSize;
      first = before / static_cast<int>(inner);
      in_first = (first + 1) * static_cast<int>(inner) - before;
    }
  }
  __device__ __forceinline__ int of(int element) const {
    if constexpr (kChannels == VecChannels::kConsecutive) return first + element;
    return element < in_first ? first : first + 1;
  }
  /// The first element in the channel of `element`.
  __device__ __forceinline__ int begin(int element) const {
    if constexpr (kChannels == VecChannels::kConsecutive) return element;
    return element < in_first ? 0 : in_first;
  }
};

/// What a thread has added up, over how many vectors, and the constant of each element.
template <class Sums>
struct ThreadSums {
  float sums[Sums::kQuantities][kVecSize] = {};
  float constants[kVecSize] = {};
  int vecs = 0;
};

// --- planes ------------------------------------------------------------------------------------

/// Shared memory of sum_planes.
template <VecChannels kChannels, class Sum, int kQuantities, int kThreads>
struct PlaneSums {
  static constexpr bool kIsTwo = kChannels == VecChannels::kTwo;
  Sum of_block[kQuantities][kMostTileChannels];
  Sum of_warp[kWarpThreads];
  // Sums of a thread's two channels.
  Sum of_threads[kIsTwo ? 2 * kQuantities : 1][kIsTwo ? kThreads : 1];
};

/// Adds up the block's threads: shared.of_block[quantity][channel of the tile]. All threads call
/// it; a barrier stands at its end.
template <int kThreads, VecChannels kChannels, class Sums>
__device__ __forceinline__ void sum_planes(
    const Sums& policy, const ThreadSums<Sums>& own, const ThreadChannels<kChannels>& channels,
    int64_t first_channel, const ChannelsShape& extents, const ChannelTiles& tiles,
    PlaneSums<kChannels, typename Sums::Sum, Sums::kQuantities, kThreads>& shared) {
  using Sum = typename Sums::Sum;
  constexpr int kQuantities = Sums::kQuantities;
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kChannels == VecChannels::kOne) {
    Sum of_block[kQuantities];
    sum_block(policy, own.sums, own.constants[0], own.vecs * kVecSize, first_channel,
              shared.of_warp, of_block);
    for (int q = 0; q < kQuantities && thread == 0; ++q) shared.of_block[q][0] = of_block[q];
  } else {
    for (int part = 0; part < 2; ++part) {
      float of_thread[kQuantities] = {};
      int count = 0;
      float constant = 0.0f;
      for (int i = 0; i < kVecSize; ++i) {
        if ((i < channels.in_first) != (part == 0)) continue;
        for (int q = 0; q < kQuantities; ++q) of_thread[q] += own.sums[q][i];
        ++count;
        constant = own.constants[i];
      }
      for (int q = 0; q < kQuantities; ++q) {
        Sum total{0};
        if (own.vecs > 0 && count > 0) {
          total = policy.total(q, of_thread, own.vecs * count, constant,
                               first_channel + channels.first + part);
        }
        shared.of_threads[2 * q + part][thread] = total;
      }
    }
    __syncthreads();
    // The threads of a slot, then a warp for each sum of a channel.
    const int width = tiles.width;
    for (int i = thread; i < 2 * kQuantities * width; i += kThreads) {
      Sum* const of_slot = &shared.of_threads[i / width][i % width];
      Sum total = of_slot[0];
      for (int row = width; row < tiles.stride; row += width) total += of_slot[row];
      of_slot[0] = total;
    }
    __syncthreads();
    const int inner = static_cast<int>(extents.inner);
    for (int sum = thread / kWarpThreads; sum < kQuantities * tiles.channels;
         sum += kThreads / kWarpThreads) {
      const int q = sum % kQuantities;
      const int begin = sum / kQuantities * inner;  // of the channel, in the tile's row
      Sum total{0};
      for (int slot = begin / kVecSize + thread % kWarpThreads; slot * kVecSize < begin + inner;
           slot += kWarpThreads) {
        total += shared.of_threads[2 * q + (slot * kVecSize < begin ? 1 : 0)][slot];
      }
      total = warp_sum(total);
      if (thread % kWarpThreads == 0) shared.of_block[q][sum / kQuantities] = total;
    }
  }
  __syncthreads();
}

// --- columns -----------------------------------------------------------------------------------

// A word of an InterBlockExchange packs a value with its flag, and is zero until it is stored. So
// neither a fence, which would wait for all earlier stores of the thread, nor a counter to poll is
// needed.

/// f32 in the low half, the flag 1 in the high half.
__device__ __forceinline__ uint64_t flagged_word(float number) {
  return uint64_t{1} << 32 | __float_as_uint(number);
}
/// f64 inverted, so that 0.0 is not the zero word; the one NaN that would be becomes another NaN.
__device__ __forceinline__ uint64_t flagged_word(double number) {
  const uint64_t word = ~static_cast<uint64_t>(__double_as_longlong(number));
  return word == 0 ? 1 : word;
}
template <class Number>
__device__ __forceinline__ Number value_of(uint64_t word) {
  if constexpr (sizeof(Number) == sizeof(float)) {
    return __uint_as_float(static_cast<uint32_t>(word));
  } else {
    return __longlong_as_double(static_cast<long long>(~word));
  }
}

__device__ __forceinline__ void store_word(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
/// Zero where nothing has been stored yet.
__device__ __forceinline__ uint64_t load_word(const uint64_t* from) {
  uint64_t found;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(from) : "memory");
  return found;
}

/// How the blocks of a tile, all of which run at once, exchange their sums:
///
///   words [blocks][kPairs]  block r stores its sums in words[r]; those that need them read all of
///                           them
///   readers                 a block counts itself here when each of its threads has read its
///                           words; the last one zeroes them, and its count wraps around to zero
///
/// so that every launch finds zeros, also one that a graph repeats. With kOneReader only the last
/// block reads, and no readers are counted.
template <class Sums, int kThreads, bool kOneReader>
class ColumnSums {
  using Sum = typename Sums::Sum;
  static constexpr int kQuantities = Sums::kQuantities;
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kPairs = kQuantities * kMostTileChannels;
  static constexpr int kGroups = kThreads / kPairs;  // of threads that share the blocks of a tile

 public:
  union Shared {
    Sum of_warps[kWarps][kPairs];
    Sum of_groups[kGroups][kPairs];
  };

  __device__ __forceinline__ ColumnSums(Shared& shared, uint64_t* words, uint32_t* readers,
                                        const ChannelTiles& tiles)
      : shared_(shared),
        words_(words + static_cast<int>(blockIdx.x) * tiles.blocks * kPairs),
        readers_(readers + blockIdx.x),
        tiles_(tiles) {
    static_assert(kThreads % kPairs == 0 && kPairs <= kExchangeWords);
  }

  /// Adds up the block's threads and stores the sums for the other blocks. A power of two of
  /// neighbouring threads share a row; threads of one column have the same constant. All threads
  /// call it; a barrier stands at its end.
  __device__ __forceinline__ void store(const Sums& policy, const ThreadSums<Sums>& own,
                                        int64_t first_channel, int rank) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarpThreads;
    float values[kVecSize * kQuantities];
    for (int i = 0; i < kVecSize; ++i) {
      for (int q = 0; q < kQuantities; ++q) values[i * kQuantities + q] = own.sums[q][i];
    }
    // Two steps over the warp's rows leave each thread two of its eight channels.
    share_sums<kVecSize * kQuantities / 2>(values, lane, kWarpThreads / 2);
    share_sums<kVecSize * kQuantities / 4>(values, lane, kWarpThreads / 4);
    int vecs = own.vecs;
    vecs += __shfl_xor_sync(kFullWarp, vecs, kWarpThreads / 2);
    vecs += __shfl_xor_sync(kFullWarp, vecs, kWarpThreads / 4);
    for (int step = kWarpThreads / 8; step >= tiles_.width; step /= 2) {
      for (int i = 0; i < 2 * kQuantities; ++i) {
        values[i] += __shfl_xor_sync(kFullWarp, values[i], step);
      }
      vecs += __shfl_xor_sync(kFullWarp, vecs, step);
    }
    const int pair = lane / 8 * 2;  // the first of the thread's two channels
    for (int i = 0; i < 2; ++i) {
      float constant = own.constants[i];
#pragma unroll
      for (int other = 2; other < kVecSize; other += 2) {
        if (pair == other) constant = own.constants[other + i];
      }
      float of_thread[kQuantities];
      for (int q = 0; q < kQuantities; ++q) of_thread[q] = values[i * kQuantities + q];
      if (lane % 8 >= tiles_.width) continue;
      const int channel = lane % 8 * kVecSize + pair + i;
      for (int q = 0; q < kQuantities; ++q) {
        shared_.of_warps[thread / kWarpThreads][q * kMostTileChannels + channel] =
            vecs > 0 ? policy.total(q, of_thread, vecs, constant, first_channel + channel) : Sum{0};
      }
    }
    __syncthreads();
    if (thread < kPairs && thread % kMostTileChannels < tiles_.channels) {
      Sum total{0};
      for (int warp = 0; warp < kWarps; ++warp) total += shared_.of_warps[warp][thread];
      store_word(words_ + rank * kPairs + thread, flagged_word(total));
    }
    __syncthreads();
  }

  /// The tile's sums of channel threadIdx.x, in the first tiles.channels threads. All threads call
  /// it.
  __device__ __forceinline__ void collect(Sum (&total)[kQuantities]) {
    const int thread = static_cast<int>(threadIdx.x);
    const int pair = thread % kPairs;
    if (thread % kMostTileChannels < tiles_.channels) {
      shared_.of_groups[thread / kPairs][pair] = share(words_ + pair, thread / kPairs);
    }
    __syncthreads();
    if (!kOneReader && thread == kThreads - kWarpThreads) {
      counted_before_ = atomicInc(readers_, static_cast<unsigned>(tiles_.blocks) - 1);
    }
    if (thread >= tiles_.channels) return;
    for (int q = 0; q < kQuantities; ++q) {
      for (int group = 0; group < kGroups; ++group) {
        total[q] += shared_.of_groups[group][q * kMostTileChannels + thread];
      }
    }
  }

  /// At the end, when the count is there without waiting: the last warp zeroes what all have read.
  __device__ __forceinline__ void zero_words() const {
    const int lane = static_cast<int>(threadIdx.x) - (kThreads - kWarpThreads);
    if (lane < 0) return;
    const uint32_t before = __shfl_sync(kFullWarp, counted_before_, 0);
    if (!kOneReader && before + 1 != static_cast<unsigned>(tiles_.blocks)) return;
    for (int i = 2 * lane; i < tiles_.blocks * kPairs; i += 2 * kWarpThreads) {
      *reinterpret_cast<uint4*>(words_ + i) = uint4{};
    }
  }

 private:
  /// A group's share of a pair's sum: every kGroups-th block.
  __device__ __forceinline__ Sum share(const uint64_t* of_pair, int group) const {
    constexpr int kInFlight = 4;  // more would disturb blocks that still read
    Sum sum{0};
    for (int block = group; block < tiles_.blocks; block += kInFlight * kGroups) {
      uint64_t found[kInFlight];
      const auto has = [&](int k) { return block + k * kGroups < tiles_.blocks; };
      const auto word = [&](int k) { return of_pair + (block + k * kGroups) * kPairs; };
      for (int k = 0; k < kInFlight; ++k) found[k] = has(k) ? load_word(word(k)) : 0;
      for (int k = 0; k < kInFlight; ++k) {
        if (!has(k)) continue;
        while (found[k] == 0) found[k] = load_word(word(k));
        sum += value_of<Sum>(found[k]);
      }
    }
    return sum;
  }

  Shared& shared_;
  uint64_t* words_;
  uint32_t* readers_;
  const ChannelTiles& tiles_;
  uint32_t counted_before_ = 0;
};

}  // namespace bertha
