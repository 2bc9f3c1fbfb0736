// Attention backward on wgmma and TMA, heads of up to 64, sequences of up to 512 tokens: one launch
// of a persistent grid, 5 GEMMs per tile, no sum across thread blocks, repeatable bit for bit.
//
// A block takes work items (sequence, head) from the list of work_list.cuh. It loops over blocks of
// 128 keys and, inside, over tiles of 64 queries:
//
//   warpgroup 0   keys   0 ..  63 of the block    S^T = K Q^T       P^T = exp2(S^T - lse)
//   warpgroup 1   keys  64 .. 127                 dP^T = V dO^T     dS^T = P^T (mask dP^T - delta)
//                 each for itself                 dV += dropout(P^T) dO, dK += dS^T Q, with left
//                                                 operands in registers; dQ += dS K in shared
//                                                 memory, warpgroup 0 before 1
//   warp 8        one lane is the producer: takes items, loads Q, dO, mask words, K, V by TMA
//   warps 9 - 11  lse and delta = rowsum(dO * O) of the next item; at the end zero padding rows
//
// dQ of all tiles stays in shared memory as f32 from one key block to the next, in the accumulator
// layout; the last key block writes it out. Split, an item has one key block, whose part of dQ goes
// to memory as f32, and sum_query_gradient.cu adds the parts up. Column sums of dqkv, where they
// are wanted: mma.sync multiplies 16 finished rows in shared memory by ones; each warpgroup stores
// one row per item.
//
// Shared    227 KiB, all there is: dQ 128 | K, V of a block 32 | 2 stages of Q, dO, mask words 34 |
//           dS 16 | 2 slots of statistics 8 | column sums 6 | list of sequences 2, items, mbarriers
// Registers 224 a consumer thread: dK 32, dV 32, K and V as left operands 32, S or P 32, dP 32,
//           packed P 16 at the widest place. The others get 56; the sum is 384 threads at 168.
//           ptxas keeps to these budgets only while the roles are one if/else: a trap in a loop
//           that waits makes it fall back to 168 registers, spill and serialize the wgmma.
// Bound by  latency: 34 % of the tensor cores, 38 % of the issue slots are in use.
// Figure    BERT-large, 96 Wikipedia sequences, dropout 0.1, one H200: 302 us, where the GEMMs
//           alone take 130. Variants: kernels/measured/attention.md.

#include <cmath>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/attention/persistent_backward_consumer.cuh"
#include "kernels/cuda/attention/persistent_backward_producer.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"

namespace bertha {
namespace backward {
namespace {

constexpr int kConsumerRegisters = 224;
constexpr int kProducerRegisters = 56;

__device__ __forceinline__ void init_barriers(SharedStorage& shared) {
  constexpr int kConsumerThreads = kConsumers * kWarpgroupThreads;
  for (int i = 0; i < kConsumers; ++i) {
    mbarrier_init(at(shared.keys_full[i]), 1);
    mbarrier_init(at(shared.values_full[i]), 1);
    mbarrier_init(at(shared.keys_empty[i]), kWarpgroupThreads);
    mbarrier_init(at(shared.values_empty[i]), kWarpgroupThreads);
  }
  for (int i = 0; i < kStages; ++i) {
    mbarrier_init(at(shared.stage_full[i]), 1);
    mbarrier_init(at(shared.stage_empty[i]), kConsumerThreads);
  }
  for (int i = 0; i < kItemSlots; ++i) {
    mbarrier_init(at(shared.item_full[i]), 1);
    mbarrier_init(at(shared.item_empty[i]), kConsumerThreads);
    for (const uint64_t& tile : shared.statistics_full[i])
      mbarrier_init(at(tile), kGroupsOfTile * kWarpThreads);
  }
  for (const auto& warpgroup : shared.dq_added) {
    for (const uint64_t& warp : warpgroup) mbarrier_init(at(warp), kWarpThreads);
  }
  fence_mbarrier_init();
}

template <class T, bool kDropout, bool kSplit, bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_backward_kernel(const __grid_constant__ Arguments args) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(shared_bytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  if (threadIdx.x == 0) init_barriers(shared);
  wait_for_kernel_before();
  begin_next_kernel();
  if (kFp8 && threadIdx.x == 0) {
    const float scale = *args.dqkv_fp8.scale;
    shared.rounding = {.scale = scale,
                       .limit = Fp8Rounding<T, __NV_E5M2>::limit_of(scale),
                       .live_tokens = live_rows_of(args.dqkv_fp8, 0, INT32_MAX),
                       .extremes = {}};
  }
  for (int i = static_cast<int>(threadIdx.x); i < kConsumers * kParts * kWarps * kWarpThreads;
       i += kThreads) {
    (&shared.column_sums[0][0][0][0])[i] = {};
  }
  shared.list.sort(args.params.batch, reinterpret_cast<uint16_t*>(shared.dquery));
  __syncthreads();
  if (warp >= kConsumers * kWarps) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    const int role = warp - kConsumers * kWarps;
    if (role == 0) {
      if (lane == 0) Producer<kDropout, kSplit>(args, shared).run();
    } else {
      prepare_statistics<T>(args, shared, role - 1, lane);
      clear_padding<kFp8>(args, (role - 1) * kWarpThreads + lane, kStatisticsWarps * kWarpThreads);
      if constexpr (!kSplit) {
        clear_empty_sequences(args, (role - 1) * kWarpThreads + lane,
                              kStatisticsWarps * kWarpThreads);
      }
    }
  } else {
    warpgroup_reg_alloc<kConsumerRegisters>();
    Consumer<T, kDropout, kSplit, kFp8>(args, shared, warp / kWarps, warp % kWarps, lane).run();
    if constexpr (kFp8) {
      named_barrier_sync(kConsumersBarrier, kConsumers * kWarpgroupThreads);
      if (threadIdx.x == 0) record_extremes(shared.rounding.extremes, args.dqkv_fp8);
    }
  }
}

template <class T, bool kDropout, bool kSplit, bool kFp8>
void launch(const PersistentLaunch& on, const Arguments& arguments) {
  const AttentionBatch& batch = arguments.params.batch;
  const int64_t items = (int64_t{batch.seqs} << batch.part_bits) * batch.heads;
  launch_dependent(on.stream, persistent_backward_kernel<T, kDropout, kSplit, kFp8>,
                   {blocks_for(items, 1, on.sm_count), kThreads, sizeof(SharedStorage)}, arguments);
}

}  // namespace
}  // namespace backward

void launch_persistent_backward(const PersistentLaunch& on, AttentionBwdParams params,
                                const Fp8Sink* dqkv_fp8) {
  using namespace backward;
  if (on.split) split_items(params.batch, kConsumers);  // a block of keys
  const AttentionBatch& batch = params.batch;
  Arguments arguments{.qkv = heads_tensor_map(on.dtype, params.qkv, batch.tokens, 3 * batch.heads,
                                              batch.head_size, kTileRows),
                      .dout = heads_tensor_map(on.dtype, params.dout, batch.tokens, batch.heads,
                                               batch.head_size, kTileRows),
                      .mask = {},
                      .params = params,
                      .dqkv_fp8 = dqkv_fp8 == nullptr ? Fp8Sink{} : *dqkv_fp8,
                      .counter = on.counter,
                      .log2_keep = std::log2(params.dropout.keep)};
  const bool has_dropout = params.dropout.random != nullptr;
  if (has_dropout) {
    arguments.mask = words_tensor_map(
        params.mask, batch.tokens, int64_t{batch.heads} * batch.mask_words, kMaskWords, kTileRows);
  }
  dispatch_16bit(on.dtype, [&]<class T>(TypeTag<T>) {
    if (on.split) {
      has_dropout ? launch<T, true, true, false>(on, arguments)
                  : launch<T, false, true, false>(on, arguments);
    } else if (dqkv_fp8 != nullptr) {
      has_dropout ? launch<T, true, false, true>(on, arguments)
                  : launch<T, false, false, true>(on, arguments);
    } else {
      has_dropout ? launch<T, true, false, false>(on, arguments)
                  : launch<T, false, false, false>(on, arguments);
    }
  });
  if (on.split) launch_sum_query_gradient(on, params);
}

}  // namespace bertha
