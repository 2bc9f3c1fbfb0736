// Attention backward with wgmma, head size 64, sequences of up to 512 tokens: one persistent
// launch, 5 products per tile, no sum that crosses a thread block, repeatable bit for bit.
//
// A thread block takes (sequence, head) after (sequence, head) off the list of work_list.cuh. It
// walks over blocks of 128 keys and, inside, over tiles of 64 queries:
//
//   warpgroup 0   keys   0 ..  63 of the block    S^T = K Q^T       P^T = exp2(S^T - lse)
//   warpgroup 1   keys  64 .. 127                 dP^T = V dO^T     dS^T = P^T (mask dP^T - delta)
//                 each for itself                 dV += kept P^T dO, dK += dS^T Q: left operands in
//                                                 registers; dQ part = dS K: dS through shared
//                                                 memory, and added there to dQ, 0 before 1
//   warp 8        one lane: takes items, starts the copies of Q, dO, mask words, K, V (TMA)
//   warps 9 - 11  statistics of the next item: lse, and delta = rowsum(dO * O) from global memory;
//                 in the end zeros behind the last sequence
//
// dQ of all tiles stays in shared memory as f32 from one block of keys to the next, laid out by the
// threads that add to it; with the last block it goes out.
//
// Column sums of dqkv, where they are wanted: a warp that has put 16 finished rows into shared memory
// multiplies them by ones there, mma.sync, and adds to what it has of the item; at the item's end
// each warpgroup leaves one row of sums. Which block has which item does not matter for them.
//
// Shared    227 KiB, all there is: dQ 128 | K, V of a block 32 | 2 stages of Q, dO, mask words 34 |
//           dS 16 | 2 slots of statistics 8 | column sums 6 | list of sequences 2, items, barriers
// Registers of 224 a consumer thread: dK 32, dV 32, K and V as left operands 32, S or P 32, dP 32,
//           packed P 16 at the widest place; later dQ 32 in place of P and dP. The others get 56.
//           The sum is that of 384 threads at 168, what the kernel starts with.
//           ptxas keeps to such budgets only while the roles are one if/else: a trap in a loop that
//           waits makes it fall back to 168, spill and serialize the products.
//
// Barriers  (mbarriers; "full" by the copy engine, "empty" by all threads of the consumers). Each
//           thread arrives for itself: as fast as one for its warp behind a __syncwarp, and
//           racecheck of compute-sanitizer sees what it orders.
//   keys_full[2], values_full[2]       K and V of a block of keys, for each warpgroup by itself
//   values_empty[2]                    V is in registers: K of the next block may come there
//   keys_empty[2]                      the block is done: V of the next may come where K was
//   stage_full[2], stage_empty[2]      Q, dO, mask words of a tile
//   announced[2], released[2]          an item and its statistics, in two slots by turns
//   statistics_full[2][8]              those of one tile; 4 groups of 16 rows arrive
//   added[2][4]                        a warp of a warpgroup has added to its part of dQ of a tile.
//                                      The other warpgroup's warp of the same rows waits for it, so
//                                      that 0 is ahead of 1 by a tile at most and never behind
//   kOfWarpgroup + warpgroup           (bar.sync) dS of a tile is free; dS of a tile is there
//
// Floors    BERT-large, 96 Wikipedia sequences, T = 24,576: 97 GFLOP in 5 products, 130 us at the
//           750 TFLOP/s of large products; 430 MB once each, 101 us. Of shared memory a tile of 64
//           x 64 takes 88 KiB, 704 clocks, where its products take 640.
// Limits    latency. A warp's step takes some 2,900 clocks for 510 instructions (ncu): 740 of them
//           exponentials, 280 waiting for dQ, 250 adding to it, 180 for the other warpgroup's turn, 140
//           to show dS to the tensor cores. Tensor cores 34 % busy, issue slots 38 %. A tile of
//           keys costs some 2,500 more: writing dK and dV, reading K and V. Sequences with an odd
//           number of tiles leave warpgroup 1 idle in their last block.
// Measured  microseconds, median of 31, NVIDIA H200, bf16, 16 heads x 64, T = 24,563 or 24,576, by a
//           program of its own, 2026-11-22; in brackets the kernel before, in the same run. The
//           column sums and the kernel that adds them up take 13 to 15 more, 5 to 7 of short
//           sequences, where a pass over dqkv takes 45. Grouped kernels and PyTorch:
//           kernels/README.md.
//             lengths                       no dropout    dropout 0.1
//             Wikipedia, 96                 280 (283)     306 (316)
//             48 x 512                      318 (319)     343 (356)
//             192 x 128                     141 (142)     145 (145)
// Tried     at Wikipedia with dropout: K and V as left operands from shared memory 4 us more. dK
//           before dS is stored 4 more; after dQ 2 more. dQ so far as what its product adds to: 8
//           more. Adding to dQ a tile later, beside the products of the next scores: 1 less with V
//           from shared memory, which its registers want. Scores on their way over the end of the
//           loop, also such as begin when dQ is complete: ptxas serializes all products. Mask words
//           before the scores are there: 7 more; shifted by multiplying: no difference. 232 and 40 registers: 4 less, but statistics take
//           so long then that 192 x 128 takes 191.

#include <cmath>

#include "kernels/cuda/attention/persistent_backward_consumer.cuh"
#include "kernels/cuda/attention/persistent_backward_producer.cuh"
#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace backward {
namespace {

constexpr int kConsumerRegisters = 224;
constexpr int kProducerRegisters = 56;

__device__ __forceinline__ void init_barriers(Shared& shared) {
  constexpr int kConsumerThreads = kConsumers * kWarpgroupThreads;
  for (int i = 0; i < kConsumers; ++i) {
    barrier_init(at(shared.keys_full[i]), 1);
    barrier_init(at(shared.values_full[i]), 1);
    barrier_init(at(shared.keys_empty[i]), kWarpgroupThreads);
    barrier_init(at(shared.values_empty[i]), kWarpgroupThreads);
  }
  for (int i = 0; i < kStages; ++i) {
    barrier_init(at(shared.stage_full[i]), 1);
    barrier_init(at(shared.stage_empty[i]), kConsumerThreads);
  }
  for (int i = 0; i < kSlots; ++i) {
    barrier_init(at(shared.announced[i]), 1);
    barrier_init(at(shared.released[i]), kConsumerThreads);
    for (const uint64_t& tile : shared.statistics_full[i])
      barrier_init(at(tile), kGroupsOfTile * kWarpThreads);
  }
  for (const auto& warpgroup : shared.added) {
    for (const uint64_t& warp : warpgroup) barrier_init(at(warp), kWarpThreads);
  }
  fence_barrier_init();
}

template <class T, bool kDropout>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_backward_kernel(const __grid_constant__ Arguments of) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  // The same in all lanes, and known to be so.
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  if (threadIdx.x == 0) init_barriers(shared);
  wait_for_kernel_before();
  begin_next_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < kConsumers * kParts * kWarps * kWarpThreads;
       i += kThreads) {
    (&shared.column_sums[0][0][0][0])[i] = {};
  }
  shared.order.sort(of.params.batch, reinterpret_cast<uint8_t*>(shared.dquery));
  __syncthreads();
  if (warp >= kConsumers * kWarps) {
    give_registers<kProducerRegisters>();
    const int role = warp - kConsumers * kWarps;
    if (role == 0) {
      if (lane == 0) Producer<kDropout>(of, shared).run();
    } else {
      prepare_statistics<T>(of, shared, role - 1, lane);
      clear_padding(of, (role - 1) * kWarpThreads + lane, kStatisticsWarps * kWarpThreads);
      clear_empty(of, (role - 1) * kWarpThreads + lane, kStatisticsWarps * kWarpThreads);
    }
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<T, kDropout>(of, shared, warp / kWarps, warp % kWarps, lane).run();
  }
}

template <class T, bool kDropout>
void launch(const PersistentLaunch& on, const Arguments& arguments) {
  const auto kernel = persistent_backward_kernel<T, kDropout>;
  allow_shared_bytes(kernel, sizeof(Shared));
  const AttentionBatch& batch = arguments.params.batch;
  const int64_t items = int64_t{batch.seqs} * batch.heads;
  launch_dependent(on.stream, kernel, {blocks_for(items, 1, on.sm_count), kThreads, sizeof(Shared)},
                   arguments);
}

}  // namespace
}  // namespace backward

void launch_persistent_backward(const PersistentLaunch& on, const AttentionBwdParams& params,
                                int64_t live_tokens) {
  using namespace backward;
  const AttentionBatch& batch = params.batch;
  const int64_t width = int64_t{batch.heads} * kHeadSize;
  // Rows behind the last sequence are not in the maps: they come as zeros, whatever they hold.
  Arguments arguments{
      .qkv = matrix_tensor_map(on.dtype, params.qkv, live_tokens, 3 * width, kTileRows),
      .dout = matrix_tensor_map(on.dtype, params.dout, live_tokens, width, kTileRows),
      .mask = {},
      .params = params,
      .counter = on.counter,
      .live_tokens = live_tokens,
      .log2_keep = std::log2(params.dropout.keep)};
  const bool has_dropout = params.dropout.random != nullptr;
  if (has_dropout) {
    arguments.mask = words_tensor_map(
        params.mask, live_tokens, int64_t{batch.heads} * batch.mask_words, kMaskWords, kTileRows);
  }
  dispatch_16bit(on.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    if (has_dropout) return launch<T, true>(on, arguments);
    launch<T, false>(on, arguments);
  });
}

}  // namespace bertha
