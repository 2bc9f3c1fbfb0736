#pragma once

// The producer and the statistics warps of persistent_backward.cu.

#include "kernels/cuda/attention/persistent_backward.cuh"

namespace bertha::backward {

/// The lane that takes items and issues TMA loads, as far ahead as stages are free.
template <bool kDropout, bool kSplit>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Arguments& args, SharedStorage& shared)
      : args_(args), shared_(shared), index_(static_cast<int>(blockIdx.x)) {}

  __device__ __forceinline__ void run() {
    AttentionItem item = take();
    publish(item);
    load_keys(item, first_key_tile<kSplit>(item));
    while (item.length > 0) {
      const int tiles = item.tiles();
      const int end_key = end_key_tile<kSplit>(item);
      AttentionItem next;
      int steps = 0;
      for (int key_tile = first_key_tile<kSplit>(item); key_tile < end_key;
           key_tile += kConsumers) {
        for (int tile = 0; tile < tiles; ++tile) {
          load_queries(item, tile, key_tile);
          // After the first queries, whose stage is free earlier.
          if (tile == 0) load_values(item, key_tile);
          // From the third step on the consumers are at this item, so the slot of the previous one
          // is free: the statistics of the next item can begin without a wait.
          if (++steps == kStages + 1) publish(next = take());
          // The consumers are at this key block too, and the buffers of the next are free.
          if (tile == kStages) {
            if (key_tile + kConsumers < end_key) {
              load_keys(item, key_tile + kConsumers);
            } else {
              load_keys(next, first_key_tile<kSplit>(next));
            }
          }
        }
      }
      if (steps <= kStages) {
        static_assert(kStages <= kConsumers);  // this was the only block of keys
        publish(next = take());
        load_keys(next, first_key_tile<kSplit>(next));
      }
      item = next;
    }
  }

 private:
  /// The next item that has keys; an item without keys if there is none.
  __device__ __forceinline__ AttentionItem take() {
    const int items = shared_.list.items(args_.params.batch);
    while (index_ < items) {
      const AttentionItem item = shared_.list.item(args_.params.batch, index_);
      index_ = take_item(args_.counter, items);
      if (!item.is_empty()) return item;
    }
    return {};
  }

  __device__ __forceinline__ void publish(const AttentionItem& item) {
    const int slot = items_ % kItemSlots;
    mbarrier_wait(at(shared_.item_empty[slot]), parity_of(items_ + kItemSlots, kItemSlots));
    shared_.items[slot] = item;
    mbarrier_arrive(at(shared_.item_full[slot]));
    ++items_;
  }

  __device__ __forceinline__ void load_queries(const AttentionItem& item, int tile, int key_tile) {
    const int stage = stages_ % kStages;
    const uint32_t full = at(shared_.stage_full[stage]);
    const int row = item.begin + tile * kTileRows;
    mbarrier_wait(at(shared_.stage_empty[stage]), parity_of(stages_ + kStages, kStages));
    mbarrier_arrive_expect_tx(full, 2 * kTileBytes + (kDropout ? kMaskBytes : 0));
    tma_load_head(at(shared_.stage[stage].query), args_.qkv, item.head, row, full);
    tma_load_head(at(shared_.stage[stage].dout), args_.dout, item.head, row, full);
    if constexpr (kDropout) {
      const int first_word = item.head * args_.params.batch.mask_words + key_tile * kTileRows / 32;
      tma_load_2d(at(shared_.mask[stage]), args_.mask, first_word, row, full);
    }
    ++stages_;
  }

  /// Loads K of a block of keys into the memory of the previous block's V.
  __device__ __forceinline__ void load_keys(const AttentionItem& item, int key_tile) {
    for (int i = 0; i < min(kConsumers, end_key_tile<kSplit>(item) - key_tile); ++i) {
      const uint32_t full = at(shared_.keys_full[i]);
      mbarrier_wait(at(shared_.values_empty[i]), parity_of(keys_[i] + 1, 1));
      mbarrier_arrive_expect_tx(full, kTileBytes);
      tma_load_head(at(shared_.keys_values[i][keys_[i] % 2]), args_.qkv,
                    args_.params.batch.heads + item.head, item.begin + (key_tile + i) * kTileRows,
                    full);
      ++keys_[i];
    }
  }
  /// Loads V of a block of keys into the memory of the previous block's K.
  __device__ __forceinline__ void load_values(const AttentionItem& item, int key_tile) {
    for (int i = 0; i < min(kConsumers, end_key_tile<kSplit>(item) - key_tile); ++i) {
      const uint32_t full = at(shared_.values_full[i]);
      mbarrier_wait(at(shared_.keys_empty[i]), parity_of(values_[i] + 1, 1));
      mbarrier_arrive_expect_tx(full, kTileBytes);
      tma_load_head(at(shared_.keys_values[i][(values_[i] + 1) % 2]), args_.qkv,
                    2 * args_.params.batch.heads + item.head,
                    item.begin + (key_tile + i) * kTileRows, full);
      ++values_[i];
    }
  }

  const Arguments& args_;
  SharedStorage& shared_;
  int index_;                    // index of the next item
  int items_ = 0;                // items
  int stages_ = 0;               // filled
  int keys_[kConsumers] = {};    // tiles of K copied, for each warpgroup
  int values_[kConsumers] = {};  // loads of V so far
};

/// lse and delta of 16 rows, by a warp; 8 lanes read a row of dO and O.
template <class T>
__device__ __forceinline__ void write_statistics(const Arguments& args, const AttentionItem& item,
                                                 int first_row, float* to_lse, float* to_delta,
                                                 int lane) {
  const AttentionBwdParams& params = args.params;
  constexpr int kRowsPerLoad = 4;
  constexpr int kLoads = kGroupRows / kRowsPerLoad;
  const int head_size = params.batch.head_size;
  const int64_t stride = int64_t{params.batch.heads} * head_size;
  const int row = first_row + lane / 8;
  const int end = lane % 8 * 8 < head_size ? item.length : 0;  // end of the lane's rows
  const int64_t first = (item.begin + row) * stride + item.head * head_size + lane % 8 * 8;
  const T* out = static_cast<const T*>(params.out) + first;
  const T* dout = static_cast<const T*>(params.dout) + first;
  uint4 out_bits[kLoads];
  uint4 dout_bits[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    out_bits[i] = dout_bits[i] = uint4{};
    if (row + i * kRowsPerLoad < end) {
      out_bits[i] = __ldg(reinterpret_cast<const uint4*>(out + i * kRowsPerLoad * stride));
      dout_bits[i] = __ldg(reinterpret_cast<const uint4*>(dout + i * kRowsPerLoad * stride));
    }
  }
  float lse = kInfinity;
  if (lane < kGroupRows && first_row + lane < item.length) {
    lse = params.lse[item.head * params.batch.tokens + item.begin + first_row + lane];
  }
  float delta = 0.0f;  // delta of row `lane`
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
    const int place = statistics_index(first_row + lane);
    to_lse[place] = kLog2E * lse + args.log2_keep;  // not earlier: the load takes long
    to_delta[place] = delta * params.dropout.keep;
  }
}

/// Statistics warp `warp`, from 0: lse and delta of all items.
template <class T>
__device__ __forceinline__ void prepare_statistics(const Arguments& args, SharedStorage& shared,
                                                   int warp, int lane) {
  for (int count = 0;; ++count) {
    const int slot = count % kItemSlots;
    mbarrier_wait(at(shared.item_full[slot]), parity_of(count, kItemSlots));
    const AttentionItem item = shared.items[slot];
    if (item.length == 0) return;
    const int groups = item.tiles() * kGroupsOfTile;
    // The mbarriers of tiles that the sequence lacks complete a phase per item too.
    for (int group = warp; group < kMaxTiles * kGroupsOfTile; group += kStatisticsWarps) {
      if (group < groups) {
        write_statistics<T>(args, item, group * kGroupRows, shared.lse[slot], shared.delta[slot],
                            lane);
      }
      mbarrier_arrive(at(shared.statistics_full[slot][group / kGroupsOfTile]));
    }
  }
}

/// Zeroes the rows of dqkv past the last sequence.
template <bool kFp8>
__device__ __forceinline__ void clear_padding(const Arguments& args, int thread, int threads) {
  const AttentionBatch& batch = args.params.batch;
  const int64_t chunks_of_row = int64_t{3} * batch.heads * batch.head_size / (kFp8 ? 16 : 8);
  uint4* chunks = static_cast<uint4*>(kFp8 ? args.dqkv_fp8.q : args.params.dqkv);
  const int64_t live = batch.cu_seqlens[batch.seqs];
  for (int64_t i = live * chunks_of_row + int64_t{blockIdx.x} * threads + thread;
       i < batch.tokens * chunks_of_row; i += int64_t{gridDim.x} * threads) {
    chunks[i] = uint4{};
  }
}

/// Zeroes the column sums of sequences without tokens, which are not items.
__device__ __forceinline__ void clear_empty_sequences(const Arguments& args, int thread,
                                                      int threads) {
  if (args.params.column_sums == nullptr) return;
  const AttentionBatch& batch = args.params.batch;
  const int sums = kConsumers * kParts * batch.heads * batch.head_size;
  for (int seq = static_cast<int>(blockIdx.x); seq < batch.seqs;
       seq += static_cast<int>(gridDim.x)) {
    if (batch.cu_seqlens[seq + 1] > batch.cu_seqlens[seq]) continue;
    float* const to = args.params.column_sums + int64_t{seq} * sums;
    for (int i = thread; i < sums; i += threads) to[i] = 0.0f;
  }
}

}  // namespace bertha::backward
