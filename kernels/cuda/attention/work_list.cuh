#pragma once

// Dynamic scheduling of the persistent kernels: every block sorts the sequences by 64-row tiles,
// the longest first, and takes items (sequence, part of it, head) from that list by a global
// counter, so that short items at the end even out the load. A sequence is one part, or several
// where whole sequences would leave SMs idle.

#include "kernels/base/cuda/reduce.cuh"
#include "kernels/cuda/attention/kernels.h"

namespace bertha {

inline constexpr int kTileRows = 64;

/// A list of more parts is taken in its own order: with that many items per block the order matters
/// little, and sorting takes quadratic time.
inline constexpr int kSortedParts = 1024;

/// One head of one sequence, and the tiles of it that are the item's: of queries in forward, of
/// keys in backward. The end of the list has no tokens.
struct alignas(16) AttentionItem {
  int begin = 0;   // token
  int length = 0;  // tokens of the sequence
  int head = 0;
  int seq = 0;
  int first_tile = 0;
  int end_tile = 0;

  __device__ __forceinline__ int tiles() const { return (length + kTileRows - 1) / kTileRows; }
  __device__ __forceinline__ bool is_empty() const { return first_tile >= end_tile; }

  /// Returns the value in a form that the compiler treats as uniform. All lanes call it.
  __device__ __forceinline__ AttentionItem warp_uniform() const {
    return {.begin = __shfl_sync(kFullWarp, begin, 0),
            .length = __shfl_sync(kFullWarp, length, 0),
            .head = __shfl_sync(kFullWarp, head, 0),
            .seq = __shfl_sync(kFullWarp, seq, 0),
            .first_tile = __shfl_sync(kFullWarp, first_tile, 0),
            .end_tile = __shfl_sync(kFullWarp, end_tile, 0)};
  }
};

/// The sorted list of a block, in shared memory.
struct WorkList {
  uint16_t parts[kSortedParts];  // (sequence << part_bits) + part, of those that have tiles
  int count;                     // number of parts in the list

  __device__ __forceinline__ static bool is_sorted(const AttentionBatch& batch) {
    return batch.seqs << batch.part_bits <= kSortedParts;
  }

  /// All threads of the block call this, and synchronise after it. `sizes`: 2 kSortedParts bytes of
  /// shared memory, then free again.
  __device__ __forceinline__ void sort(const AttentionBatch& batch, uint16_t* sizes) {
    if (threadIdx.x == 0) count = is_sorted(batch) ? 0 : batch.seqs << batch.part_bits;
    if (!is_sorted(batch)) return;
    // The upper byte orders sequences, the lower one is the number of their parts.
    const int threads = static_cast<int>(blockDim.x);
    for (int seq = static_cast<int>(threadIdx.x); seq < batch.seqs; seq += threads) {
      const int length = batch.cu_seqlens[seq + 1] - batch.cu_seqlens[seq];
      const int tiles = (length + kTileRows - 1) / kTileRows;
      const int own_parts = (tiles + batch.tiles_of_part - 1) / batch.tiles_of_part;
      sizes[seq] = static_cast<uint16_t>(tiles << 8 | own_parts);
    }
    __syncthreads();
    for (int seq = static_cast<int>(threadIdx.x); seq < batch.seqs; seq += threads) {
      const int own = sizes[seq];
      int before = 0;
      int all = 0;
      for (int other = 0; other < batch.seqs; ++other) {
        const int size = sizes[other];
        const int of_other = size & 0xFF;
        all += of_other;
        before += size > own || (size == own && other < seq) ? of_other : 0;
      }
#pragma unroll 1
      for (int part = 0; part < (own & 0xFF); ++part) {
        parts[before + part] = static_cast<uint16_t>((seq << batch.part_bits) + part);
      }
      if (seq == 0) count = all;
    }
  }

  __device__ __forceinline__ int items(const AttentionBatch& batch) const {
    return count * batch.heads;
  }

  /// Item `index` below items(). It can be empty only if the list is not sorted.
  __device__ __forceinline__ AttentionItem item(const AttentionBatch& batch, int index) const {
    const int place = index / batch.heads;
    const int part = is_sorted(batch) ? parts[place] : place;
    const int seq = part >> batch.part_bits;
    const int first_tile = (part - (seq << batch.part_bits)) * batch.tiles_of_part;
    const int begin = batch.cu_seqlens[seq];
    const int length = batch.cu_seqlens[seq + 1] - begin;
    const int tiles = (length + kTileRows - 1) / kTileRows;
    return {.begin = begin,
            .length = length,
            .head = index - place * batch.heads,
            .seq = seq,
            .first_tile = first_tile,
            .end_tile = min(first_tile + batch.tiles_of_part, tiles)};
  }
};

/// Splits sequences into items of at most `tiles_of_part` tiles.
inline void split_items(AttentionBatch& batch, int tiles_of_part) {
  constexpr int kWordsOfTile = kTileRows / 32;
  const int tiles = (batch.mask_words + kWordsOfTile - 1) / kWordsOfTile;
  batch.tiles_of_part = tiles_of_part;
  batch.part_bits = 0;
  while (tiles_of_part << batch.part_bits < tiles) ++batch.part_bits;
}

/// The item after one that a block has just taken, of `count`; the first of block i is item i.
/// Each item taken draws once, hence `count` draws in all: the last one wraps the counter around to
/// 0 for the next kernel.
__device__ __forceinline__ int take_item(uint32_t* counter, int count) {
  return static_cast<int>(gridDim.x + atomicInc(counter, static_cast<unsigned>(count - 1)));
}

}  // namespace bertha
