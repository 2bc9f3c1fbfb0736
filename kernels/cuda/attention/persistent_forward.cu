// Attention forward on wgmma and TMA: a persistent grid of one block per SM. A block takes work
// items (sequence, head) from a list; K and V of an item come to shared memory once, and all its
// queries are computed from there.
//
//     producer warpgroup             shared memory                   3 consumer warpgroups
//     warp 0     takes items, loads    10 stages of 64 keys and        each has 64 queries in
//                K, V and Q by TMA     64 values                       registers and loops over
//     warps 1-3  zero padding rows     Q: 3 tiles of 64 queries        the stages: GEMMs, softmax,
//                                      O: 3 tiles of 64 rows           random bits
//     mbarriers  of a stage: keys full, values full, empty; of a consumer: queries full, empty
//
// Query tiles go to the consumers round-robin, across the ends of items. A consumer releases a
// stage in its last pass over it, so that the keys of the next item arrive while this one is
// computed. Split, an item has three query tiles at most, one for each consumer.
//
// Softmax   S of the next key tile and O += P V of this one are in flight together; the
//           exponentials of the next tile wait only for S. Random bits are drawn between the
//           exponentials, which leave issue slots. No running maximum is kept: P = exp2(S -
//           reference), where the reference is the maximum over the first 64 keys. A warp whose row
//           sum outgrows what O and the sums hold, 2^64 in bf16, computes the tile again by
//           mma.sync and rescales.
// Registers 160 a consumer thread: O 32, S 32, P 16, Q 16 and the dropout masks 16 at the widest
//           place; 32 a producer thread.
// Bound by  latency: with dropout 49 % of the issue slots are in use, and 30 % of the tensor cores.
// Figure    BERT-large, 96 Wikipedia sequences, dropout 0.1, one H200: 123 us, where exponentials
//           alone take 45 and the bytes 47. Variants: kernels/measured/attention.md.

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/persistent_forward.cuh"
#include "kernels/cuda/tensor_core/pipeline_state.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace forward {
namespace {

constexpr int kRowBytes = 2 * kHeadSize;
constexpr uint32_t kTileBytes = kTileRows * kRowBytes;

constexpr int kConsumers = 3;  // warpgroups
constexpr int kWarpsPerWarpgroup = kWarpgroupThreads / kWarpThreads;
constexpr int kConsumerWarps = kConsumers * kWarpsPerWarpgroup;
constexpr int kThreads = (kConsumers + 1) * kWarpgroupThreads;

// A block has the registers of its launch, 128 for each of its threads: consumers can allocate what
// the producer has released.
constexpr int kConsumerRegisters = 160;
constexpr int kProducerRegisters = 32;

/// Tiles of 64 keys and values in shared memory: the 8 of the longest sequence, and 2 of the next
/// one so that it can begin at once.
constexpr int kStages = 10;
using Stage = PipelineState<kStages>;

struct alignas(1024) SharedStorage {
  unsigned char keys[kStages][kTileBytes];
  unsigned char values[kStages][kTileBytes];
  unsigned char queries[kConsumers][kTileBytes];
  unsigned char out[kConsumers][kTileBytes];
  uint64_t keys_full[kStages];
  uint64_t values_full[kStages];
  uint64_t empty[kStages];
  uint64_t queries_full[kConsumers];
  uint64_t queries_empty[kConsumers];
  AttentionItem items[kStages];  // whose first tile is in the stage
  WorkList list;
};

struct Params {
  AttentionFwdParams call;
  uint32_t* counter;  // for take_item()
};

/// Releases the stages of an item for which this warp has no queries. Waits for each first: an
/// arrival before the stage is full would count for the previous phase.
__device__ __forceinline__ void release_unused(Stage first, int tiles, int lane,
                                               SharedStorage& shared) {
  __syncwarp();  // all lanes have read the item
  if (lane < tiles) {
    const Stage stage = first.after(lane);
    mbarrier_wait(at(shared.keys_full[stage.index]), stage.parity);
    mbarrier_arrive(at(shared.empty[stage.index]));
  }
  __syncwarp();
}

/// The producer: takes items and issues their TMA loads. One thread.
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& map,
                                        SharedStorage& shared) {
  const AttentionBatch& batch = params.call.batch;
  const int count = shared.list.items(batch);
  Stage stage;
  int consumer = 0;              // for the next queries
  uint32_t consumer_parity = 1;  // parity of "queries empty"
  int next = static_cast<int>(blockIdx.x);
  while (next < count) {
    const AttentionItem item = shared.list.item(batch, next);
    next = take_item(params.counter, count);
    if (item.is_empty()) continue;
    const int tiles = item.tiles();
    const auto load_queries = [&](int tile) {
      mbarrier_wait(at(shared.queries_empty[consumer]), consumer_parity);
      const uint32_t full = at(shared.queries_full[consumer]);
      mbarrier_arrive_expect_tx(full, kTileBytes);
      tma_load_head(at(shared.queries[consumer]), map, item.head, item.begin + tile * kTileRows,
                    full);
      if (++consumer == kConsumers) {
        consumer = 0;
        consumer_parity ^= 1;
      }
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = item.begin + tile * kTileRows;
      mbarrier_wait(at(shared.empty[stage.index]), stage.parity ^ 1);
      if (tile == 0) shared.items[stage.index] = item;
      const uint32_t keys_full = at(shared.keys_full[stage.index]);
      mbarrier_arrive_expect_tx(keys_full, kTileBytes);
      tma_load_head(at(shared.keys[stage.index]), map, batch.heads + item.head, row, keys_full);
      const uint32_t values_full = at(shared.values_full[stage.index]);
      mbarrier_arrive_expect_tx(values_full, kTileBytes);
      tma_load_head(at(shared.values[stage.index]), map, 2 * batch.heads + item.head, row,
                    values_full);
      stage = stage.after(1);
      // The first tile of each consumer is loaded early; the others wait for a free buffer.
      const int query_tile = item.first_tile + tile;
      if (tile < kConsumers && query_tile < item.end_tile) load_queries(query_tile);
    }
    for (int tile = item.first_tile + kConsumers; tile < item.end_tile; ++tile) load_queries(tile);
  }
  mbarrier_wait(at(shared.empty[stage.index]), stage.parity ^ 1);
  shared.items[stage.index] = {};
  mbarrier_arrive(at(shared.keys_full[stage.index]));
}

/// Zeroes out and lse past the last sequence; this thread is number `thread` of `threads`.
__device__ __forceinline__ void clear_padding(const AttentionFwdParams& params, int thread,
                                              int threads) {
  const AttentionBatch& batch = params.batch;
  const int64_t live = batch.cu_seqlens[batch.seqs];
  const int64_t row_chunks = int64_t{batch.heads} * (batch.head_size / 8);
  uint4* rows = static_cast<uint4*>(params.out);
  for (int64_t i = live * row_chunks + thread; i < batch.tokens * row_chunks; i += threads) {
    rows[i] = make_uint4(0, 0, 0, 0);
  }
  for (int head = 0; head < batch.heads; ++head) {
    for (int64_t token = live + thread; token < batch.tokens; token += threads) {
      params.lse[head * batch.tokens + token] = 0.0f;
    }
  }
}

/// One consumer warpgroup.
template <class T, DropoutKind kDropout>
__device__ __forceinline__ void consume(const Params& params, int warpgroup, int warp, int lane,
                                        const CUtensorMap& out_map, SharedStorage& shared) {
  const AttentionFwdParams& call = params.call;
  const float scale = call.scale * kLog2E;
  DropoutMask<kDropout> mask(call);
  constexpr bool kHasDropout = kDropout != DropoutKind::kNone;
  const auto release = [&](Stage stage) {
    if (lane == 0) mbarrier_arrive(at(shared.empty[stage.index]));
  };

  const uint64_t key_tiles = uniform_wgmma_tile(at(shared.keys));
  const uint64_t value_tiles = uniform_wgmma_tile(at(shared.values));
  const auto at_stage = [](uint64_t tiles, Stage stage) {
    return wgmma_offset(tiles, static_cast<uint32_t>(stage.index) * kTileBytes);
  };

  QueryRows<T> queries;
  Stage first;
  int query_tile = warpgroup;   // of this warpgroup; between items counted from the item's first
  uint32_t queries_parity = 0;  // parity of "full"
  for (;;) {
    mbarrier_wait(at(shared.keys_full[first.index]), first.parity);
    const AttentionItem item = shared.items[first.index].warp_uniform();
    if (item.length == 0) break;
    bool first_pass = true;  // over the item's stages: wait until they are full
    const int tiles = item.tiles();
    const int ragged = item.length % kTileRows == 0 ? tiles : tiles - 1;
    query_tile += item.first_tile;
    if (query_tile >= item.end_tile) release_unused(first, tiles, lane, shared);
    for (; query_tile < item.end_tile; query_tile += kConsumers) {
      // Whether this is the warpgroup's last pass over this item.
      const bool last_pass = query_tile + kConsumers >= item.end_tile;
      const int first_row = query_tile * kTileRows + warp * kWarpRows;
      mbarrier_wait(at(shared.queries_full[warpgroup]), queries_parity);
      queries_parity ^= 1;
      queries.load_q(at(shared.queries[warpgroup]), warp, lane);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(at(shared.queries_empty[warpgroup]));
      if constexpr (kHasDropout) mask.start_rows(call.batch, item, first_row, lane);

      float score[32];
      uint32_t p[kSteps][4];
      uint32_t kept[kSteps][4];
      Stage stage = first.warp_uniform();
      Stage next = stage.after(1);
      const auto mask_keys = [&](int tile) {
        if (tile == ragged) mask_tail(score, item.length - tile * kTileRows, lane);
      };
      float row_sums[2];
      const auto softmax = [&]() {
        queries.softmax_exp(score, scale, row_sums, [&](float partial_sum) {
          if constexpr (kHasDropout) mask.draw(partial_sum);
        });
        if constexpr (kHasDropout) mask.hold();
      };
      const auto apply_dropout = [&]() {
#pragma unroll
        for (int i = 0; i < 16; ++i) p[i / 4][i % 4] &= kept[i / 4][i % 4];
      };
      const auto wait_for_pv = [&]() {
        wgmma_wait<0>();
        hold_registers(queries.acc_o);
      };
      /// P of the tile at `stage` once more, with the references raised to its maxima.
      const auto recompute = [&](int tile) {
        queries.gemm_qk_by_warp(score, at(shared.keys[stage.index]), lane);
        mask_keys(tile);
        queries.rescale(score, scale);
        queries.softmax_exp(score, scale, row_sums, [](float) {});
      };

      queries.gemm_qk(score, at_stage(key_tiles, stage));
      wgmma_wait<0>();
      hold_registers(score);
      mask_keys(0);
      queries.init_reference(score, scale);
      softmax();
      queries.pack_p(p, score);
      if constexpr (kHasDropout) {
        mask.finish(kept, lane);
        apply_dropout();
      }
      queries.row_sum[0] = row_sums[0];
      queries.row_sum[1] = row_sums[1];
      uint64_t keys = at_stage(key_tiles, next);
      uint64_t values = at_stage(value_tiles, stage);
      for (int tile = 1; tile < tiles; ++tile) {
        if (first_pass) mbarrier_wait(at(shared.keys_full[next.index]), next.parity);
        queries.gemm_qk(score, keys);
        if (first_pass) mbarrier_wait(at(shared.values_full[stage.index]), stage.parity);
        queries.gemm_pv(p, values);
        const Stage in_flight = stage;
        stage = next;
        next = next.after(1);
        keys = at_stage(key_tiles, next);
        values = at_stage(value_tiles, stage);
        wgmma_wait<1>();  // for S
        hold_registers(score);
        mask_keys(tile);
        softmax();
        // The scores have outgrown their references, or one is NaN.
        const bool outgrown = __any_sync(kFullWarp, !(row_sums[0] + row_sums[1] < kMaxRowSum<T>));
        if constexpr (kHasDropout) {
          // The wait for O is after the branch, or ptxas puts it among the exponentials.
          mask.finish(kept, lane);
          uint32_t new_p[kSteps][4];
          queries.pack_p(new_p, score);
#pragma unroll
          for (int step = 0; step < kSteps; ++step) hold_registers(new_p[step]);
          if (outgrown) {
            wait_for_pv();
            recompute(tile);
            queries.pack_p(new_p, score);
          }
          wait_for_pv();
#pragma unroll
          for (int i = 0; i < 16; ++i) p[i / 4][i % 4] = new_p[i / 4][i % 4];
          apply_dropout();
        } else {
          wait_for_pv();
          queries.pack_p(p, score);
          if (outgrown) {
            recompute(tile);
            queries.pack_p(p, score);
          }
        }
        if (last_pass) release(in_flight);
        queries.row_sum[0] = row_sums[0];
        queries.row_sum[1] = row_sums[1];
      }
      if (first_pass) mbarrier_wait(at(shared.values_full[stage.index]), stage.parity);
      queries.gemm_pv(p, values);
      wait_for_pv();
      if (last_pass) release(stage);
      first_pass = false;
      queries.store_out(call, item, first_row, at(shared.out[warpgroup]), out_map, warp, lane);
    }
    query_tile -= item.end_tile;
    first = first.after(tiles);
  }
  if (lane == 0) bulk_store_wait();
}

template <class T, DropoutKind kDropout>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_forward(const __grid_constant__ Params params,
                       const __grid_constant__ CUtensorMap map,
                       const __grid_constant__ CUtensorMap out_map) {
  extern __shared__ __align__(1024) unsigned char raw[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(map);
    prefetch_tensor_map(out_map);
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(at(shared.keys_full[stage]), 1);
      mbarrier_init(at(shared.values_full[stage]), 1);
      mbarrier_init(at(shared.empty[stage]), kConsumerWarps);
    }
    for (int warpgroup = 0; warpgroup < kConsumers; ++warpgroup) {
      mbarrier_init(at(shared.queries_full[warpgroup]), 1);
      mbarrier_init(at(shared.queries_empty[warpgroup]), kWarpsPerWarpgroup);
    }
    fence_mbarrier_init();
  }
  wait_for_kernel_before();
  static_assert(sizeof(shared.out) >= kSortedParts * sizeof(uint16_t));
  shared.list.sort(params.call.batch, reinterpret_cast<uint16_t*>(shared.out[0]));
  __syncthreads();

  if (warp >= kConsumerWarps) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    const int role = warp - kConsumerWarps;
    if (role == 0 && lane == 0) produce(params, map, shared);
    if (role >= 1) {
      constexpr int kZeroingThreads = 3 * kWarpThreads;
      clear_padding(
          params.call,
          static_cast<int>(blockIdx.x) * kZeroingThreads + (role - 1) * kWarpThreads + lane,
          static_cast<int>(gridDim.x) * kZeroingThreads);
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    consume<T, kDropout>(params, warp / kWarpsPerWarpgroup, warp % kWarpsPerWarpgroup, lane,
                         out_map, shared);
  }
}

template <class T, DropoutKind kDropout>
void launch(const PersistentLaunch& on, const Params& params, const CUtensorMap& map,
            const CUtensorMap& out_map) {
  const AttentionBatch& batch = params.call.batch;
  const int64_t items = (int64_t{batch.seqs} << batch.part_bits) * batch.heads;
  launch_dependent(on.stream, persistent_forward<T, kDropout>,
                   {blocks_for(items, 1, on.sm_count), kThreads, sizeof(SharedStorage)}, params,
                   map, out_map);
}

}  // namespace
}  // namespace forward

void launch_persistent_forward(const PersistentLaunch& on, AttentionFwdParams call) {
  using namespace forward;
  if (on.split) split_items(call.batch, kConsumers);  // a tile for each
  const AttentionBatch& batch = call.batch;
  BERTHA_CHECK(call.dropout.random == nullptr ||
                   batch.tokens * batch.heads * batch.mask_words < int64_t{1} << 32,
               "the mask of ", batch.tokens, " tokens, ", batch.heads, " heads and ",
               batch.mask_words, " words has no 32-bit index");
  // The last tile of a sequence has values of the next one, or of padding rows. Their P is 0, but
  // NaN or infinity in them may spread: such a batch has no loss and no update anyway.
  const CUtensorMap map = heads_tensor_map(on.dtype, call.qkv, batch.tokens, 3 * batch.heads,
                                           batch.head_size, kTileRows);
  const CUtensorMap out_map =
      heads_tensor_map(on.dtype, call.out, batch.tokens, batch.heads, batch.head_size, kWarpRows);
  const Params params{call, on.counter};
  dispatch_16bit(on.dtype, [&]<class T>(TypeTag<T>) {
    if (call.dropout.random == nullptr) {
      return launch<T, DropoutKind::kNone>(on, params, map, out_map);
    }
    if (call.dropout.threshold == kDefaultThreshold) {
      return launch<T, DropoutKind::kDefault>(on, params, map, out_map);
    }
    launch<T, DropoutKind::kAny>(on, params, map, out_map);
  });
}

}  // namespace bertha
