#pragma once

// The roles of persistent_backward.cu that feed the consumers.

#include "kernels/cuda/attention/persistent_backward.cuh"

namespace bertha::backward {

/// The lane that takes items and starts copies, ahead of the consumers by what has room.
template <bool kDropout>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Arguments& of, Shared& shared)
      : of_(of), shared_(shared), index_(static_cast<int>(blockIdx.x)) {}

  __device__ __forceinline__ void run() {
    AttentionItem item = take();
    announce(item);
    copy_keys(item, 0);
    while (item.length > 0) {
      const int tiles = item.tiles();
      AttentionItem next;
      int steps = 0;
      for (int key_tile = 0; key_tile < tiles; key_tile += kConsumers) {
        for (int tile = 0; tile < tiles; ++tile) {
          copy_queries(item, tile, key_tile);
          // Behind the first queries, because they find room earlier.
          if (tile == 0) copy_values(item, key_tile);
          // From the third step on the consumers are at this item, so that the slot of the one
          // before it is free: the statistics of the next can begin without anybody waiting.
          if (++steps == kStages + 1) announce(next = take());
          // Likewise they are at this block of keys, and have made room for the next.
          if (tile == kStages) {
            if (key_tile + kConsumers < tiles) {
              copy_keys(item, key_tile + kConsumers);
            } else {
              copy_keys(next, 0);
            }
          }
        }
      }
      if (steps <= kStages) {
        static_assert(kStages <= kConsumers);  // this was the only block of keys
        announce(next = take());
        copy_keys(next, 0);
      }
      item = next;
    }
  }

 private:
  /// The next item that has tokens; one without when there is none.
  __device__ __forceinline__ AttentionItem take() {
    while (index_ < of_.items()) {
      const AttentionItem item = shared_.order.item(of_.params.batch, index_);
      index_ = draw_item(of_.counter, of_.items());
      if (item.length > 0) return item;
    }
    return {};
  }

  __device__ __forceinline__ void announce(const AttentionItem& item) {
    const int slot = announced_ % kSlots;
    barrier_wait(at(shared_.released[slot]), parity_of(announced_ + kSlots, kSlots));
    shared_.items[slot] = item;
    barrier_arrive(at(shared_.announced[slot]));
    ++announced_;
  }

  __device__ __forceinline__ void copy_queries(const AttentionItem& item, int tile, int key_tile) {
    const int stage = stages_ % kStages;
    const uint32_t full = at(shared_.stage_full[stage]);
    const int row = item.begin + tile * kTileRows;
    barrier_wait(at(shared_.stage_empty[stage]), parity_of(stages_ + kStages, kStages));
    barrier_arrive_expecting(full, 2 * kTileBytes + (kDropout ? kMaskBytes : 0));
    copy_box_async(at(shared_.stage[stage].query), of_.qkv, item.head * kHeadSize, row, full);
    copy_box_async(at(shared_.stage[stage].dout), of_.dout, item.head * kHeadSize, row, full);
    if constexpr (kDropout) {
      const int first_word = item.head * of_.params.batch.mask_words + key_tile * kTileRows / 32;
      copy_box_async(at(shared_.mask[stage]), of_.mask, first_word, row, full);
    }
    ++stages_;
  }

  /// K of a block of keys, where V of the block before it was.
  __device__ __forceinline__ void copy_keys(const AttentionItem& item, int key_tile) {
    for (int i = 0; i < min(kConsumers, item.tiles() - key_tile); ++i) {
      const uint32_t full = at(shared_.keys_full[i]);
      barrier_wait(at(shared_.values_empty[i]), parity_of(keys_[i] + 1, 1));
      barrier_arrive_expecting(full, kTileBytes);
      copy_box_async(at(shared_.keys_values[i][keys_[i] % 2]), of_.qkv,
                     (of_.params.batch.heads + item.head) * kHeadSize,
                     item.begin + (key_tile + i) * kTileRows, full);
      ++keys_[i];
    }
  }
  /// V of a block of keys, where K of the block before it was.
  __device__ __forceinline__ void copy_values(const AttentionItem& item, int key_tile) {
    for (int i = 0; i < min(kConsumers, item.tiles() - key_tile); ++i) {
      const uint32_t full = at(shared_.values_full[i]);
      barrier_wait(at(shared_.keys_empty[i]), parity_of(values_[i] + 1, 1));
      barrier_arrive_expecting(full, kTileBytes);
      copy_box_async(at(shared_.keys_values[i][(values_[i] + 1) % 2]), of_.qkv,
                     (2 * of_.params.batch.heads + item.head) * kHeadSize,
                     item.begin + (key_tile + i) * kTileRows, full);
      ++values_[i];
    }
  }

  const Arguments& of_;
  Shared& shared_;
  int index_;                    // of the item to take next
  int announced_ = 0;            // items
  int stages_ = 0;               // filled
  int keys_[kConsumers] = {};    // tiles of K copied, for each warpgroup
  int values_[kConsumers] = {};  // of V
};

/// lse and delta of 16 rows, by a warp; 8 lanes read a row of dO and of O.
template <class T>
__device__ __forceinline__ void write_statistics(const Arguments& of, const AttentionItem& item,
                                                 int first_row, float* to_lse, float* to_delta,
                                                 int lane) {
  const AttentionBwdParams& params = of.params;
  constexpr int kRowsPerLoad = 4;
  constexpr int kLoads = kGroupRows / kRowsPerLoad;
  const int64_t stride = int64_t{params.batch.heads} * kHeadSize;
  const int row = first_row + lane / 8;
  const int64_t first = (item.begin + row) * stride + item.head * kHeadSize + lane % 8 * 8;
  const T* out = static_cast<const T*>(params.out) + first;
  const T* dout = static_cast<const T*>(params.dout) + first;
  uint4 out_bits[kLoads];
  uint4 dout_bits[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    out_bits[i] = dout_bits[i] = uint4{};
    if (row + i * kRowsPerLoad < item.length) {
      out_bits[i] = __ldg(reinterpret_cast<const uint4*>(out + i * kRowsPerLoad * stride));
      dout_bits[i] = __ldg(reinterpret_cast<const uint4*>(dout + i * kRowsPerLoad * stride));
    }
  }
  float lse = kInfinity;
  if (lane < kGroupRows && first_row + lane < item.length) {
    lse = params.lse[item.head * params.batch.tokens + item.begin + first_row + lane];
  }
  float delta = 0.0f;  // of row `lane`
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const T* o = reinterpret_cast<const T*>(&out_bits[i]);
    const T* d = reinterpret_cast<const T*>(&dout_bits[i]);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += to_float(o[j]) * to_float(d[j]);
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, distance);
    }
    // Row 4 i + r is in lanes 8 r to 8 r + 7.
    const float of_row = __shfl_sync(kFullWarp, sum, lane % kRowsPerLoad * 8);
    if (lane / kRowsPerLoad == i) delta = of_row;
  }
  if (lane < kGroupRows) {
    const int place = place_of_query(first_row + lane);
    to_lse[place] = kLog2E * lse + of.log2_keep;  // not before: the load takes long
    to_delta[place] = delta * params.dropout.keep;
  }
}

/// A warp of the statistics, `warp` from 0: those of all items.
template <class T>
__device__ __forceinline__ void prepare_statistics(const Arguments& of, Shared& shared, int warp,
                                                   int lane) {
  for (int count = 0;; ++count) {
    const int slot = count % kSlots;
    barrier_wait(at(shared.announced[slot]), parity_of(count, kSlots));
    const AttentionItem item = shared.items[slot];
    if (item.length == 0) return;
    const int groups = item.tiles() * kGroupsOfTile;
    // Tiles that the sequence does not have are arrived at too: all have a phase for each item.
    for (int group = warp; group < kMostTiles * kGroupsOfTile; group += kStatisticsWarps) {
      if (group < groups) {
        write_statistics<T>(of, item, group * kGroupRows, shared.lse[slot], shared.delta[slot],
                            lane);
      }
      barrier_arrive(at(shared.statistics_full[slot][group / kGroupsOfTile]));
    }
  }
}

/// Zeroes rows [live_tokens, T) of dqkv.
__device__ __forceinline__ void clear_padding(const Arguments& of, int thread, int threads) {
  const AttentionBatch& batch = of.params.batch;
  const int64_t chunks_of_row = int64_t{3} * batch.heads * kRowBytes / 16;
  uint4* chunks = static_cast<uint4*>(of.params.dqkv);
  for (int64_t i = of.live_tokens * chunks_of_row + int64_t{blockIdx.x} * threads + thread;
       i < batch.tokens * chunks_of_row; i += int64_t{gridDim.x} * threads) {
    chunks[i] = uint4{};
  }
}

/// Zeroes the column sums of sequences without tokens: they are no items.
__device__ __forceinline__ void clear_empty(const Arguments& of, int thread, int threads) {
  if (of.params.column_sums == nullptr) return;
  const AttentionBatch& batch = of.params.batch;
  const int sums = kConsumers * kParts * batch.heads * kHeadSize;
  for (int seq = static_cast<int>(blockIdx.x); seq < batch.seqs;
       seq += static_cast<int>(gridDim.x)) {
    if (batch.cu_seqlens[seq + 1] > batch.cu_seqlens[seq]) continue;
    float* const to = of.params.column_sums + int64_t{seq} * sums;
    for (int i = thread; i < sums; i += threads) to[i] = 0.0f;
  }
}

}  // namespace bertha::backward
