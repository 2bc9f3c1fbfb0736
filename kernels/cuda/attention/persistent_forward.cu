// Attention forward on wgmma and bulk copies: one launch of as many thread blocks as there are
// SMs, each of which takes (sequence, head) after (sequence, head) off a list. Keys and
// values of an item come to shared memory once, and all its queries walk over them there.
//
//     producing warpgroup            shared memory                   3 consuming warpgroups
//     warp 0     takes items, copies   10 slots of 64 keys, 64 values  each holds 64 queries in
//                K, V and Q            3 tiles of 64 queries           registers and walks over
//     warps 1-3  zero padding rows     3 tiles of 64 results           the slots: products,
//                                      list of sequences, items        softmax, random bits
//     barriers   of a slot: keys full, values full, empty; of a consumer: queries full, empty
//
// Tiles of 64 queries go to the consumers in turn, over the ends of items: with 3 consumers, tile 0
// of an item may be anyone's. A consumer gives a slot back on its last walk over it, so that the
// keys of the next item come while this one is still worked on.
// In the loop, scores of the next 64 keys and the sum over the values of these 64 are in flight
// together, and the exponentials of the next scores need only the first. Random bits are drawn
// between the exponentials, which leave issue slots.
// There is no running maximum: weights are exp2(score - maximum over the first 64 keys). A warp whose
// weights have outgrown what sums and products hold, 2^64 in bf16, multiplies the tile once more,
// alone, and moves the reference.
//
// Floors    BERT-large, 96 Wikipedia sequences, T = 24,563: 40,500 tiles of 64 x 64, 307 for each
//           SM, of 256 clocks on tensor cores or on exp: 45 us. Bytes 47 us.
// Limits    latencies: 49 % of the issue slots are in use with dropout, the logic pipe 38 %, tensor
//           cores and exp 30 % each. A step of a warp takes some 1,600 clocks for 290 instructions, 190
//           without dropout: 350 until its products are under way, 900 on exp and random bits; what
//           stands around the steps of a walk (next tile of queries, logarithm, results) is a third
//           of the whole.
//           Scores with a standard deviation of 33 are multiplied twice so often that it costs 28
//           us; with 5 it costs nothing.
// Measured  microseconds, median of 41 on operands in no cache, NVIDIA H200, bf16, 16 heads x 64,
//           2026-11-22; in brackets the kernel before these steps, in the same run. With a
//           probability other than 0.1 some 5 more, by an earlier version.
//             lengths                       no dropout    dropout 0.1
//             Wikipedia, 96, T = 24,563      99 (103)     126 (139)
//             48 x 512                      113 (118)     144 (163)
//             192 x 128                      59  (59)      78  (78)
// Tried     at Wikipedia. Random bits drawn between the products: 2 more; beside them: 13. Random
//           bits from a kernel of their own, read again here: 35 (of one Philox block each 32) and
//           some 134. Bits drawn from the first FMA of a tile on, between which and the next a wide
//           multiplication costs 20 clocks: 5 more; behind 8 exponentials instead of 16: 1 more, at
//           512 tokens 3; a tile ahead of their use: 1 more. The first sums not added to zeros: no
//           difference. Random bits from three idle warps by way of shared memory, one for each
//           consumer, four draws side by side: 18 more than drawn here; a fourth of each tile's for
//           each of four: 210 more. Bits of two Philox blocks: 6 more. Numbers of 20 digits instead
//           of 24: no difference. Round keys made for each draw: 4 more. Descriptors shuffled in
//           each step: 4 more without dropout. A producer that sleeps between looks at its barriers:
//           no difference. Products of a warpgroup started under a lock, so that those of two do not
//           share the tensor cores: 4 more. A running maximum by FMNMX: 6 more with dropout, 5
//           without; by VIMNMX3 on differences from the reference: 4 and 9 more. Results written by
//           ordinary stores: 2 more. First scores of the next walk started before the results of
//           this one leave: no difference. Warps whose rows are all behind the sequence skip the
//           softmax: 6 more without dropout, 14 with. 4 consumers of 112 registers, queries in
//           shared memory, the sum over the values awaited before the next softmax: 4 more without
//           dropout, 23 more with; of 120 registers with queries in them: ptxas serializes all
//           products. Queries in shared memory and 3 consumers: 5 and 3 more. 3 consumers that leave
//           the sum over the values running while the next scores start: the trap of wgmma.cuh,
//           wrong scores.

#include <algorithm>

#include "kernels/cuda/attention/persistent.h"
#include "kernels/cuda/attention/persistent_forward.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/tensor_core/barrier.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace forward {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kRowBytes = 2 * kHeadSize;
constexpr uint32_t kTileBytes = kTileRows * kRowBytes;

constexpr int kConsumers = 3;  // warpgroups
constexpr int kWarpsPerGroup = kWarpgroupThreads / kWarpThreads;
constexpr int kConsumingWarps = kConsumers * kWarpsPerGroup;
constexpr int kThreads = (kConsumers + 1) * kWarpgroupThreads;

// A thread block has the registers of its launch, 4 x 128 for a thread of each warpgroup: what
// consumers take, the producer must have given.
constexpr int kConsumerRegisters = 160;
constexpr int kProducerRegisters = 32;

/// Keys and values of 64 tokens each that shared memory holds: the 8 of the longest sequence, and 2
/// of the next one so that it can begin at once.
constexpr int kSlots = 10;

struct alignas(1024) Memory {
  unsigned char keys[kSlots][kTileBytes];
  unsigned char values[kSlots][kTileBytes];
  unsigned char queries[kConsumers][kTileBytes];
  unsigned char results[kConsumers][kTileBytes];  // on their way out
  uint64_t keys_full[kSlots];
  uint64_t values_full[kSlots];
  uint64_t empty[kSlots];
  uint64_t queries_full[kConsumers];
  uint64_t queries_empty[kConsumers];
  AttentionItem items[kSlots];  // whose first tile is in the slot
  WorkOrder order;
};

struct Params {
  AttentionFwdParams call;
  uint32_t* counter;  // of draw_item()
};

/// A place in the ring of slots, and the phase of its barriers.
struct Place {
  int slot = 0;
  uint32_t parity = 0;  // of "full" in this round; "empty" of the round before has the other

  __device__ __forceinline__ Place after(int tiles) const {
    Place place{slot + tiles, parity};
    if (place.slot >= kSlots) {
      place.slot -= kSlots;
      place.parity ^= 1;
    }
    return place;
  }
  /// As it is, known to the compiler to be the same in all lanes. All lanes call it.
  __device__ __forceinline__ Place same_in_all() const {
    return {__shfl_sync(kFullWarp, slot, 0), __shfl_sync(kFullWarp, parity, 0)};
  }
};

/// Gives back the slots of an item that this warp does not walk over. Each is waited for first: an
/// arrival before the slot is filled would count for the round before.
__device__ __forceinline__ void release_unused(Place first, int tiles, int lane, Memory& shared) {
  __syncwarp();  // all lanes have read the item
  if (lane < tiles) {
    const Place place = first.after(lane);
    barrier_wait(at(shared.keys_full[place.slot]), place.parity);
    barrier_arrive(at(shared.empty[place.slot]));
  }
  __syncwarp();
}

/// Takes items and starts their copies. One thread.
__device__ __forceinline__ void produce(const Params& params, const CUtensorMap& map,
                                        Memory& shared) {
  const AttentionBatch& batch = params.call.batch;
  const int count = batch.seqs * batch.heads;
  const int part = batch.heads * kHeadSize;  // columns of Q, of K, of V
  Place place;
  int consumer = 0;              // whose turn it is to get queries
  uint32_t consumer_parity = 1;  // of "queries empty"
  int next = static_cast<int>(blockIdx.x);
  while (next < count) {
    const AttentionItem item = shared.order.item(batch, next);
    next = draw_item(params.counter, count);
    const int tiles = item.tiles();
    const int column = item.head * kHeadSize;
    const auto copy_queries = [&](int tile) {
      barrier_wait(at(shared.queries_empty[consumer]), consumer_parity);
      const uint32_t full = at(shared.queries_full[consumer]);
      barrier_arrive_expecting(full, kTileBytes);
      copy_box_async(at(shared.queries[consumer]), map, column, item.begin + tile * kTileRows,
                     full);
      if (++consumer == kConsumers) {
        consumer = 0;
        consumer_parity ^= 1;
      }
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = item.begin + tile * kTileRows;
      barrier_wait(at(shared.empty[place.slot]), place.parity ^ 1);
      if (tile == 0) shared.items[place.slot] = item;
      const uint32_t keys_full = at(shared.keys_full[place.slot]);
      barrier_arrive_expecting(keys_full, kTileBytes);
      copy_box_async(at(shared.keys[place.slot]), map, part + column, row, keys_full);
      const uint32_t values_full = at(shared.values_full[place.slot]);
      barrier_arrive_expecting(values_full, kTileBytes);
      copy_box_async(at(shared.values[place.slot]), map, 2 * part + column, row, values_full);
      place = place.after(1);
      // The queries that everybody begins with come early, the others wait for consumers.
      if (tile < kConsumers) copy_queries(tile);
    }
    for (int tile = kConsumers; tile < tiles; ++tile) copy_queries(tile);
  }
  barrier_wait(at(shared.empty[place.slot]), place.parity ^ 1);
  shared.items[place.slot] = {};
  barrier_arrive(at(shared.keys_full[place.slot]));
}

/// Zeroes out and lse behind the last sequence; this thread is number `thread` of `threads`.
__device__ __forceinline__ void clear_padding(const AttentionFwdParams& params, int thread,
                                              int threads) {
  const AttentionBatch& batch = params.batch;
  const int64_t live = batch.cu_seqlens[batch.seqs];
  const int64_t row_chunks = int64_t{batch.heads} * (kRowBytes / 16);
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

/// One consuming warpgroup.
template <class T, Drop kDrop>
__device__ __forceinline__ void consume(const Params& params, int group, int warp, int lane,
                                        const CUtensorMap& out_map, Memory& shared) {
  const AttentionFwdParams& call = params.call;
  const float scale = call.scale * kLog2E;
  MaskDraw<kDrop> draw(call);
  constexpr bool kDrops = kDrop != Drop::kNothing;
  const auto release = [&](Place place) {
    if (lane == 0) barrier_arrive(at(shared.empty[place.slot]));
  };

  const uint64_t keys_of_slots = uniform_wgmma_tile(at(shared.keys));
  const uint64_t values_of_slots = uniform_wgmma_tile(at(shared.values));
  const auto in_slot = [](uint64_t slots, Place place) {
    return wgmma_behind(slots, static_cast<uint32_t>(place.slot) * kTileBytes);
  };

  Queries<T> queries;
  Place first;
  int turn = group;             // tiles of queries until this warpgroup's next
  uint32_t queries_parity = 0;  // of "full"
  for (;;) {
    barrier_wait(at(shared.keys_full[first.slot]), first.parity);
    const AttentionItem item = shared.items[first.slot].same_in_all();
    if (item.length == 0) break;
    bool is_first = true;  // walk over the item, so that it waits for what comes
    const int tiles = item.tiles();
    const int ragged = item.length % kTileRows == 0 ? tiles : tiles - 1;
    if (turn >= tiles) release_unused(first, tiles, lane, shared);
    for (; turn < tiles; turn += kConsumers) {
      const bool is_last = turn + kConsumers >= tiles;  // of this warpgroup in this item
      const int first_row = turn * kTileRows + warp * kWarpRows;
      barrier_wait(at(shared.queries_full[group]), queries_parity);
      queries_parity ^= 1;
      queries.begin(at(shared.queries[group]), warp, lane);
      __syncwarp();
      if (lane == 0) barrier_arrive(at(shared.queries_empty[group]));
      if constexpr (kDrops) draw.begin(call.batch, item, first_row, lane);

      float score[32];
      uint32_t probability[kSteps][4];
      uint32_t kept[kSteps][4];
      Place place = first.same_in_all();
      Place next = place.after(1);
      const auto hide = [&](int tile) {
        if (tile == ragged) hide_tail(score, item.length - tile * kTileRows, lane);
      };
      float sums[2];
      const auto weigh = [&]() {
        queries.exponentiate(score, scale, sums, [&](float weight) {
          if constexpr (kDrops) draw.draw(weight);
        });
        if constexpr (kDrops) draw.hold();
      };
      const auto drop = [&]() {
#pragma unroll
        for (int i = 0; i < 16; ++i) probability[i / 4][i % 4] &= kept[i / 4][i % 4];
      };
      const auto await_sums = [&]() {
        wgmma_wait<0>();
        hold_registers(queries.sum);
      };
      /// The weights of the tile at `place`, with references that have moved to them.
      const auto weigh_again = [&](int tile) {
        queries.score_again(score, at(shared.keys[place.slot]), lane);
        hide(tile);
        queries.raise(score, scale);
        queries.exponentiate(score, scale, sums, [](float) {});
      };

      queries.start_scores(score, in_slot(keys_of_slots, place));
      wgmma_wait<0>();
      hold_registers(score);
      hide(0);
      queries.refer(score, scale);
      weigh();
      queries.pack(probability, score);
      if constexpr (kDrops) {
        draw.finish(kept, lane);
        drop();
      }
      queries.total[0] = sums[0];
      queries.total[1] = sums[1];
      uint64_t keys = in_slot(keys_of_slots, next);
      uint64_t values = in_slot(values_of_slots, place);
      for (int tile = 1; tile < tiles; ++tile) {
        if (is_first) barrier_wait(at(shared.keys_full[next.slot]), next.parity);
        queries.start_scores(score, keys);
        if (is_first) barrier_wait(at(shared.values_full[place.slot]), place.parity);
        queries.start_sums(probability, values);
        const Place summed = place;
        place = next;
        next = next.after(1);
        keys = in_slot(keys_of_slots, next);
        values = in_slot(values_of_slots, place);
        wgmma_wait<1>();  // the scores
        hold_registers(score);
        hide(tile);
        weigh();
        // Where the scores have outgrown their references, or a weight is NaN.
        const bool again = __any_sync(kFullWarp, !(sums[0] + sums[1] < kMostWeight<T>));
        if constexpr (kDrops) {
          // The sums are awaited behind the branch, or ptxas does so among the exponentials.
          draw.finish(kept, lane);
          uint32_t pairs[kSteps][4];
          queries.pack(pairs, score);
#pragma unroll
          for (int step = 0; step < kSteps; ++step) hold_registers(pairs[step]);
          if (again) {
            await_sums();
            weigh_again(tile);
            queries.pack(pairs, score);
          }
          await_sums();
#pragma unroll
          for (int i = 0; i < 16; ++i) probability[i / 4][i % 4] = pairs[i / 4][i % 4];
          drop();
        } else {
          await_sums();
          queries.pack(probability, score);
          if (again) {
            weigh_again(tile);
            queries.pack(probability, score);
          }
        }
        if (is_last) release(summed);
        queries.total[0] = sums[0];
        queries.total[1] = sums[1];
      }
      if (is_first) barrier_wait(at(shared.values_full[place.slot]), place.parity);
      queries.start_sums(probability, values);
      await_sums();
      if (is_last) release(place);
      is_first = false;
      queries.store(call, item, first_row, at(shared.results[group]), out_map, warp, lane);
    }
    turn -= tiles;
    first = first.after(tiles);
  }
  if (lane == 0) wait_for_stores();
}

template <class T, Drop kDrop>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_forward(const __grid_constant__ Params params,
                       const __grid_constant__ CUtensorMap map,
                       const __grid_constant__ CUtensorMap out_map) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Memory& shared = *reinterpret_cast<Memory*>(raw);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(map);
    prefetch_tensor_map(out_map);
    for (int slot = 0; slot < kSlots; ++slot) {
      barrier_init(at(shared.keys_full[slot]), 1);
      barrier_init(at(shared.values_full[slot]), 1);
      barrier_init(at(shared.empty[slot]), kConsumingWarps);
    }
    for (int group = 0; group < kConsumers; ++group) {
      barrier_init(at(shared.queries_full[group]), 1);
      barrier_init(at(shared.queries_empty[group]), kWarpsPerGroup);
    }
    fence_barrier_init();
  }
  wait_for_kernel_before();
  static_assert(sizeof(shared.results) >= kSortedSeqs);
  shared.order.sort(params.call.batch, shared.results[0]);
  __syncthreads();

  if (warp >= kConsumingWarps) {
    give_registers<kProducerRegisters>();
    const int role = warp - kConsumingWarps;
    if (role == 0 && lane == 0) produce(params, map, shared);
    if (role >= 1) {
      constexpr int kClearing = 3 * kWarpThreads;  // threads of each block
      clear_padding(params.call,
                    static_cast<int>(blockIdx.x) * kClearing + (role - 1) * kWarpThreads + lane,
                    static_cast<int>(gridDim.x) * kClearing);
    }
  } else {
    take_registers<kConsumerRegisters>();
    consume<T, kDrop>(params, warp / kWarpsPerGroup, warp % kWarpsPerGroup, lane, out_map, shared);
  }
}

template <class T, Drop kDrop>
void launch(const PersistentLaunch& on, const Params& params, const CUtensorMap& map,
            const CUtensorMap& out_map) {
  constexpr int kBytes = static_cast<int>(sizeof(Memory));
  allow_shared_bytes(persistent_forward<T, kDrop>, kBytes);
  const int items = params.call.batch.seqs * params.call.batch.heads;
  const unsigned blocks = static_cast<unsigned>(std::max(1, std::min(items, on.sm_count)));
  launch_dependent(on.stream, persistent_forward<T, kDrop>, {blocks, kThreads, kBytes}, params, map,
                   out_map);
}

}  // namespace
}  // namespace forward

void launch_persistent_forward(const PersistentLaunch& on, const AttentionFwdParams& call,
                               int64_t live_tokens) {
  using namespace forward;
  const AttentionBatch& batch = call.batch;
  BERTHA_CHECK(call.dropout.random == nullptr ||
                   batch.tokens * batch.heads * batch.mask_words < int64_t{1} << 32,
               "the mask of ", batch.tokens, " tokens, ", batch.heads, " heads and ",
               batch.mask_words, " words has no 32-bit index");
  // Rows behind the last sequence are not in the map and come as zeros: their probabilities are 0,
  // but 0 times what stands there may be NaN. Values of the next sequence do come, so that NaN or
  // infinity in it may spread to this one: such a batch has no loss and no update anyway.
  const CUtensorMap map = matrix_tensor_map(on.dtype, call.qkv, std::max(live_tokens, int64_t{1}),
                                            int64_t{3} * batch.heads * kHeadSize, kTileRows);
  const CUtensorMap out_map = matrix_tensor_map(on.dtype, call.out, batch.tokens,
                                                int64_t{batch.heads} * kHeadSize, kWarpRows);
  const Params params{call, on.counter};
  dispatch_16bit(on.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    if (call.dropout.random == nullptr) {
      return launch<T, Drop::kNothing>(on, params, map, out_map);
    }
    if (call.dropout.threshold == kUsualThreshold) {
      return launch<T, Drop::kUsual>(on, params, map, out_map);
    }
    launch<T, Drop::kAny>(on, params, map, out_map);
  });
}

}  // namespace bertha
