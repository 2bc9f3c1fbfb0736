#pragma once

// Dynamic scheduling of the persistent kernels: every block sorts the sequences by 64-row tiles,
// the longest first, and takes (sequence, head) items from that list by a global counter, so that
// short items at the end even out the load.

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/common/reduce.cuh"

namespace bertha {

inline constexpr int kTileRows = 64;

/// Batches of more sequences are taken in their own order: with so many items per block the order
/// matters little, and sorting takes quadratic time.
inline constexpr int kSortedSeqs = 1024;

/// Rows of queries and keys of one head of one sequence; the end of the list has no tokens.
struct alignas(16) AttentionItem {
  int begin = 0;   // token
  int length = 0;  // tokens
  int head = 0;
  int seq = 0;

  __device__ __forceinline__ int tiles() const { return (length + kTileRows - 1) / kTileRows; }

  /// The same value, which the compiler then knows to be uniform. All lanes call it.
  __device__ __forceinline__ AttentionItem warp_uniform() const {
    return {.begin = __shfl_sync(kFullWarp, begin, 0),
            .length = __shfl_sync(kFullWarp, length, 0),
            .head = __shfl_sync(kFullWarp, head, 0),
            .seq = __shfl_sync(kFullWarp, seq, 0)};
  }
};

/// The sorted list of a block, in shared memory.
struct WorkList {
  uint16_t seqs[kSortedSeqs];

  /// All threads of the block call this. `tiles`: kSortedSeqs bytes of shared memory, free again
  /// after the last barrier inside.
  __device__ __forceinline__ void sort(const AttentionBatch& batch, uint8_t* tiles) {
    if (batch.seqs > kSortedSeqs) return;
    const int threads = static_cast<int>(blockDim.x);
    for (int seq = static_cast<int>(threadIdx.x); seq < batch.seqs; seq += threads) {
      const int length = batch.cu_seqlens[seq + 1] - batch.cu_seqlens[seq];
      tiles[seq] = static_cast<uint8_t>((length + kTileRows - 1) / kTileRows);
    }
    __syncthreads();
    for (int seq = static_cast<int>(threadIdx.x); seq < batch.seqs; seq += threads) {
      const int own = tiles[seq];
      int before = 0;
      for (int other = 0; other < batch.seqs; ++other) {
        before += tiles[other] > own || (tiles[other] == own && other < seq);
      }
      seqs[before] = static_cast<uint16_t>(seq);
    }
    __syncthreads();
  }

  /// Item `index` below batch.seqs * batch.heads.
  __device__ __forceinline__ AttentionItem item(const AttentionBatch& batch, int index) const {
    const int place = index / batch.heads;
    const int seq = batch.seqs > kSortedSeqs ? place : seqs[place];
    const int begin = batch.cu_seqlens[seq];
    return {.begin = begin,
            .length = batch.cu_seqlens[seq + 1] - begin,
            .head = index - place * batch.heads,
            .seq = seq};
  }
};

/// The item after one that a block has just taken; the first of block i is item i, so there are at
/// most as many blocks as items. Each item taken draws once, hence `count` draws in all: the last
/// one wraps the counter around to 0 for the next kernel.
__device__ __forceinline__ int take_item(uint32_t* counter, int count) {
  return static_cast<int>(gridDim.x + atomicInc(counter, static_cast<unsigned>(count - 1)));
}

}  // namespace bertha
