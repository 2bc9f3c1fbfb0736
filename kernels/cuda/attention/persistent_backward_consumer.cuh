#pragma once

// The consumer warpgroups of persistent_backward.cu.

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/cuda/attention/persistent_backward.cuh"

namespace bertha::backward {

// Named barriers: this plus the warpgroup, and one of all consumers.
inline constexpr int kWarpgroupBarrier = 1;
inline constexpr int kConsumersBarrier = kWarpgroupBarrier + kConsumers;

/// A warp's rows of an accumulator, times `factor`, as left operands of 16 columns each.
template <class T>
__device__ __forceinline__ void pack(uint32_t (&left)[kSteps][4], const float (&sum)[32],
                                     float factor) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &sum[8 * step + 2 * i];
      left[step][i] = packed<T>(pair[0] * factor, pair[1] * factor);
    }
  }
}

/// Writes a warp's rows to `own`, 16 rows of a swizzled tile in shared memory.
__device__ __forceinline__ void store_rows(uint32_t own, const uint32_t (&rows)[kSteps][4],
                                           int lane) {
  const auto by_rows = rows_first<kHeadSize>(lane);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) stmatrix_x4(by_rows.at(own, 0, step), rows[step]);
}

/// The first of the two columns whose sums a lane has; the other is 8 columns further.
__device__ __forceinline__ int column_of_lane(int lane) { return 16 * (lane % 4) + lane / 4; }

/// Adds the sums of the 64 columns of a warp's rows to `sums`, two for each lane: the transposed
/// rows, as left operands of 16 columns each, times a right operand that is 1 in the column of the
/// result for the step's sums.
template <class T>
__device__ __forceinline__ void add_columns(uint32_t own, float2& sums, int lane) {
  const auto by_rows = rows_first<kHeadSize>(lane);
  float sum[2][4] = {{sums.x, 0.0f, sums.y, 0.0f}};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t blocks[4];
    ldmatrix_x4_trans(blocks, by_rows.at(own, 0, step));
    const uint32_t left[4] = {blocks[0], blocks[2], blocks[1], blocks[3]};
    const uint32_t right = lane / 4 == 2 * step ? packed<T>(1.0f, 1.0f) : 0u;
    mma_m16n8k16<T>(sum[step % 2], left, right, right);
  }
  sums = {sum[0][0] + sum[1][0], sum[0][2] + sum[1][2]};
}

/// Copies a warp's rows from shared memory to `to`, only the rows that the sequence has (below
/// `rows_left`) and of each as many columns as the head.
template <class T>
__device__ __forceinline__ void copy_rows(const unsigned char* own, T* to, int stride,
                                          int rows_left, int head_size, int lane) {
  const int row = lane / 8;
  const int chunk = lane % 8;
  T* const to_lane = to + (row * stride + chunk * 8);
#pragma unroll
  for (int i = 0; i < kWarpRows / 4; ++i) {
    if (4 * i + row < rows_left && chunk * 8 < head_size) {
      *reinterpret_cast<uint4*>(to_lane + 4 * i * stride) =
          *reinterpret_cast<const uint4*>(own + chunk_offset<kHeadSize>(4 * i + row, chunk));
    }
  }
}

/// Copies them rounded to e5m2 and records the first `live` of them in `of_block`. A lane copies 16
/// columns of two rows: half as many stores as with 8 columns of four, and its loads have no bank
/// conflicts either. It records its part of `rows`, which is there before the loads arrive.
template <class T>
__device__ __forceinline__ void round_rows(const uint32_t (&rows)[kSteps][4],
                                           const unsigned char* own, uint8_t* to, int stride,
                                           int rows_left, int live, int head_size, int lane,
                                           RoundingOfBlock& of_block) {
  constexpr int kLaneRows = 2;
  constexpr int kRowDistance = kWarpRows / kLaneRows;
  const int row = lane / 4;
  const int chunk = lane % 4 * 2;
  Vec<T, kVecSize> chunks[kLaneRows][2];
  Vec<T, kVecSize> recorded[2 * kLaneRows];  // other columns of the same rows
#pragma unroll
  for (int i = 0; i < 2 * kLaneRows; ++i) {
    const uint32_t offset = chunk_offset<kHeadSize>(row + i / 2 * kRowDistance, chunk + i % 2);
    chunks[i / 2][i % 2] = load_vec(reinterpret_cast<const T*>(own + offset));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      recorded[i].word[j] = rows[i % 2 * 2 + j / 2][i / 2 + j % 2 * 2];
    }
  }
  Fp8Rounding<T, __NV_E5M2, true> rounding(of_block.scale, of_block.limit);
  rounding.record(recorded, (row < live ? 2 : 0) + (row + kRowDistance < live ? 2 : 0));
  const Fp8Extremes extremes = rounding.extremes();
  const uint32_t most = __reduce_max_sync(kFullWarp, extremes.most);
  uint8_t* const to_lane = to + (row * stride + chunk * kVecSize);
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    const uint2 first = rounding.round(chunks[i][0]);
    const uint2 second = rounding.round(chunks[i][1]);
    if (row + i * kRowDistance >= rows_left || chunk * kVecSize >= head_size) continue;
    *reinterpret_cast<uint4*>(to_lane + i * kRowDistance * stride) = {first.x, first.y, second.x,
                                                                      second.y};
  }
  if (lane == 0) atomicMax(&of_block.extremes.most, most);
  if (extremes.saturated > 0) atomicAdd(&of_block.extremes.saturated, extremes.saturated);
}

/// One of the two consumer warpgroups.
template <class T, bool kDropout, bool kSplit, bool kFp8>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Arguments& args, SharedStorage& shared, int warpgroup,
                                      int warp, int lane)
      : params_(args.params),
        dqkv_fp8_(args.dqkv_fp8),
        shared_(shared),
        warpgroup_(warpgroup),
        warp_(warp),
        lane_(lane),
        scale_(args.params.scale * kLog2E),
        mask_shift_(31 - (warp % 2 * kWarpRows + 8 + lane / 4)) {}

  __device__ __forceinline__ void run() {
    for (int count = 0;; ++count) {
      slot_ = count % kItemSlots;
      slot_parity_ = parity_of(count, kItemSlots);
      mbarrier_wait(at(shared_.item_full[slot_]), slot_parity_);
      const int tiles = item().tiles();
      if (tiles == 0) return;
      const int end = end_key_tile<kSplit>(item());
      for (int first = first_key_tile<kSplit>(item()); first < end; first += kConsumers) {
        if (first + warpgroup_ < end) {
          process_key_tile(first + warpgroup_, end, tiles);
        } else {
          skip_key_tile(tiles);
        }
      }
      if (params_.column_sums != nullptr) store_column_sums();
      mbarrier_arrive(at(shared_.item_empty[slot_]));
    }
  }

 private:
  // Read again when needed, to save registers.
  __device__ __forceinline__ const AttentionItem& item() const { return shared_.items[slot_]; }

  __device__ __forceinline__ void sync_warpgroup() {
    named_barrier_sync(kWarpgroupBarrier + warpgroup_, kWarpgroupThreads);
  }
  __device__ __forceinline__ void wait_for_stage() {
    mbarrier_wait(at(shared_.stage_full[stages_ % kStages]), parity_of(stages_, kStages));
  }
  /// The warpgroups add to a tile of dQ in order: 0, then 1.
  __device__ __forceinline__ void wait_dq_turn() {
    const int behind = warpgroup_ == 0 ? 1 : 0;
    mbarrier_wait(at(shared_.dq_added[1 - warpgroup_][warp_]), parity_of(stages_ + behind, 1));
  }
  /// Tested early, so that the result is there when it is needed.
  __device__ __forceinline__ bool is_dq_turn() {
    const int behind = warpgroup_ == 0 ? 1 : 0;
    return mbarrier_test_wait(at(shared_.dq_added[1 - warpgroup_][warp_]),
                              parity_of(stages_ + behind, 1));
  }
  __device__ __forceinline__ void pass_dq_turn() {
    mbarrier_arrive(at(shared_.dq_added[warpgroup_][warp_]));
  }

  /// Stores this warp's rows of a tile in part `part` of dqkv, through 2,048 bytes of shared
  /// memory, `own`. Adds up their columns as rounded to T; rows past the sequence are 0.
  __device__ __forceinline__ void store_gradient(int part, const float (&sum)[32], float factor,
                                                 unsigned char* own, int tile) {
    const AttentionItem of_item = item();
    const int heads = params_.batch.heads;
    const int head_size = params_.batch.head_size;
    const int first_row = tile * kTileRows + warp_ * kWarpRows;
    const int64_t token = of_item.begin + first_row;
    const int64_t first = ((3 * token + part) * heads + of_item.head) * head_size;
    const int stride = 3 * heads * head_size;
    const int rows_left = of_item.length - first_row;
    uint32_t rows[kSteps][4];
    pack<T>(rows, sum, factor);
    __syncwarp();
    store_rows(shared_address(own), rows, lane_);
    __syncwarp();
    if constexpr (kFp8) {
      RoundingOfBlock& rounding = shared_.rounding;
      const int live = min(rows_left, rounding.live_tokens - static_cast<int>(token));
      round_rows<T>(rows, own, dqkv_fp8_.q + first, stride, rows_left, live, head_size, lane_,
                    rounding);
    } else {
      copy_rows(own, static_cast<T*>(params_.dqkv) + first, stride, rows_left, head_size, lane_);
    }
    float2* const sums = column_sums(part);
    if (sums != nullptr) add_columns<T>(shared_address(own), sums[lane_], lane_);
  }

  /// This warp's column sums of part `part`; null unless they are requested.
  __device__ __forceinline__ float2* column_sums(int part) {
    if (params_.column_sums == nullptr) return nullptr;
    return shared_.column_sums[warpgroup_][part][warp_];
  }
  /// Stores the sums of the warpgroup's warps and resets them.
  __device__ __forceinline__ void store_column_sums() {
    sync_warpgroup();  // all have added
    if (warp_ >= kParts) return;
    if constexpr (kSplit) {  // the second kernel stores the sums of dQ
      if (warp_ == 0 || item().first_tile + warpgroup_ >= item().end_tile) return;
    }
    float2 total = {};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      float2& of_warp = shared_.column_sums[warpgroup_][warp_][warp][lane_];
      total.x += of_warp.x;
      total.y += of_warp.y;
      of_warp = {};  // added to after another barrier of the warpgroup
    }
    const int64_t row =
        kSplit ? int64_t{item().seq} * kColumnSumsOfSplitSeq + item().first_tile + warpgroup_
               : int64_t{item().seq} * kColumnSumsOfSeq + warpgroup_;
    const int column = column_of_lane(lane_);
    const int head_size = params_.batch.head_size;
    float* to = params_.column_sums +
                ((row * kParts + warp_) * params_.batch.heads + item().head) * head_size + column;
    if (column < head_size) to[0] = total.x;
    if (column + 8 < head_size) to[8] = total.y;
  }

  /// Descriptor of the queries of stage number `count`; dO follows them.
  __device__ __forceinline__ uint64_t query_tile_of_stage(int count) {
    return uniform_wgmma_tile(at(shared_.stage[count % kStages].query));
  }

  /// A query loop without keys: releases the stages.
  __device__ __forceinline__ void skip_key_tile(int tiles) {
    for (int tile = 0; tile < tiles; ++tile) {
      wait_for_stage();
      mbarrier_arrive(at(shared_.stage_empty[stages_ % kStages]));
      wait_dq_turn();
      pass_dq_turn();
      ++stages_;
    }
  }

  /// All query tiles against a key tile; the item's last is `end` - 1.
  __device__ __forceinline__ void process_key_tile(int key_tile, int end, int tiles) {
    const uint32_t keys = at(shared_.keys_values[warpgroup_][key_blocks_ % 2]);
    const uint32_t values = at(shared_.keys_values[warpgroup_][(key_blocks_ + 1) % 2]);
    const uint32_t key_parity = parity_of(key_blocks_, 1);
    ++key_blocks_;
    const uint32_t dscore_tile = at(shared_.dscores[warpgroup_]);
    const int keys_left = item().length - key_tile * kTileRows;
    constexpr Inner kColumns = Inner::kColumns;
    constexpr Inner kRows = Inner::kRows;
    const uint64_t dscore_rows = uniform_wgmma_tile(dscore_tile);
    const uint64_t key_tile_rows = uniform_wgmma_tile(keys);
    uint64_t query_tile = query_tile_of_stage(stages_);
    float dkey[32] = {};  // sums of dS^T Q / scale
    float dvalue[32] = {};
    uint32_t key_rows[kSteps][4];
    uint32_t value_rows[kSteps][4];
    const auto by_rows = rows_first<kHeadSize>(lane_);
    mbarrier_wait(at(shared_.keys_full[warpgroup_]), key_parity);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ldmatrix_x4(key_rows[step], by_rows.at(keys, warp_ * kWarpRows, step));
    }
    mbarrier_wait(at(shared_.values_full[warpgroup_]), key_parity);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ldmatrix_x4(value_rows[step], by_rows.at(values, warp_ * kWarpRows, step));
    }
    // ldmatrix has read before the arrival lets TMA overwrite.
#pragma unroll
    for (int step = 0; step < kSteps; ++step) hold_registers(value_rows[step]);
    mbarrier_arrive(at(shared_.values_empty[warpgroup_]));
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = stages_ % kStages;
      const uint64_t dout_tile = wgmma_offset(query_tile, sizeof(shared_.stage[0].query));
      wait_for_stage();
      // Later key blocks find all statistics there.
      if (kSplit || key_tile < kConsumers) {
        mbarrier_wait(at(shared_.statistics_full[slot_][tile]), slot_parity_);
      }
      float scores[32];
      float dp[32];  // dP, then dS
      wgmma_fence();
      wgmma_64x64x64<T, kColumns, false>(scores, key_rows, query_tile);
      wgmma_64x64x64<T, kColumns, false>(dp, value_rows, dout_tile);
      float lse[kLaneQueries];
      load_statistics(lse, shared_.lse[slot_], tile);
      wgmma_wait<1>();
      hold_registers(scores);

      uint32_t kept[kSteps][4];
      softmax_exp(scores, kept, lse, stage, keys_left);
      wgmma_fence();
      wgmma_64x64x64<T, kRows, true>(dvalue, kept, dout_tile);
      float delta[kLaneQueries];
      // With dropout, no registers are left for them while dP is in flight.
      if constexpr (!kDropout) load_statistics(delta, shared_.delta[slot_], tile);
      wgmma_wait<1>();
      hold_registers(dp);
      if constexpr (kDropout) load_statistics(delta, shared_.delta[slot_], tile);

      softmax_backward(dp, scores, delta);
      uint32_t dscores[kSteps][4];
      pack<T>(dscores, dp, 1.0f);
      sync_warpgroup();  // dS of the tile before has been read
      store_rows(dscore_tile + warp_ * kWarpRows * kRowBytes, dscores, lane_);
      fence_proxy_async();
      wgmma_fence();
      wgmma_64x64x64<T, kRows, true>(dkey, dscores, query_tile);
      sync_warpgroup();  // dS is stored
      float dquery[32];
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        wgmma_64x64x16<T, kRows, kRows>(dquery, wgmma_step<kRows>(dscore_rows, step),
                                        wgmma_step<kRows>(key_tile_rows, step), step > 0);
      }
      wgmma_commit();
      const bool turn_has_come = is_dq_turn();
      query_tile = query_tile_of_stage(stages_ + 1);
      wgmma_wait<0>();
      hold_registers(dquery);
      hold_registers(dkey);
      hold_registers(dvalue);
      mbarrier_arrive(at(shared_.stage_empty[stage]));
      if (!turn_has_come) wait_dq_turn();
      accumulate_dq(dquery, tile, kSplit ? warpgroup_ == 0 : key_tile == 0, key_tile + 1 == end);
      pass_dq_turn();
      ++stages_;
    }
    mbarrier_arrive(at(shared_.keys_empty[warpgroup_]));
    sync_warpgroup();  // dS has been read
    unsigned char* own = &shared_.dscores[warpgroup_][warp_ * kWarpRows * kRowBytes];
    store_gradient(1, dkey, params_.scale, own, key_tile);
    store_gradient(2, dvalue, 1.0f, own, key_tile);
  }

  /// Loads the values of the tile's queries that are this lane's columns.
  __device__ __forceinline__ void load_statistics(float (&to)[kLaneQueries], const float* from,
                                                  int tile) {
    const float* of_lane = from + tile * kTileRows + lane_ % 4 * 4;
#pragma unroll
    for (int i = 0; i < kLaneQueries / 4; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(of_lane + 16 * i);
      to[4 * i] = four.x;
      to[4 * i + 1] = four.y;
      to[4 * i + 2] = four.z;
      to[4 * i + 3] = four.w;
    }
  }

  /// Replaces scores by P / keep, negative if dropped; kept: dropout(P), packed.
  __device__ __forceinline__ void softmax_exp(float (&scores)[32], uint32_t (&kept)[kSteps][4],
                                              const float (&lse)[kLaneQueries], int stage,
                                              int keys_left) {
    if (keys_left < kTileRows) {
      const int row = warp_ * kWarpRows + lane_ / 4;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (row + i / 2 % 2 * 8 >= keys_left) scores[i] = -kInfinity;
      }
    }
    const uint32_t* mask = &shared_.mask[stage][lane_ % 4 * 2][2 * warpgroup_ + warp_ / 2];
#pragma unroll
    for (int column = 0; column < 8; ++column) {
      uint32_t words[2][2];  // [query][key], the decision in the highest bit
      if constexpr (kDropout) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          words[i][1] = mask[(8 * column + i) * kMaskWords] << mask_shift_;
          words[i][0] = words[i][1] << 8;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& p = scores[4 * column + i];
        p = exp2_approximate(p * scale_ - lse[2 * column + i % 2]);
        if constexpr (kDropout) {
          constexpr uint32_t kSign = 0x80000000u;
          p = __uint_as_float(logic_of_three<0xAE>(words[i % 2][i / 2], kSign, __float_as_uint(p)));
        }
      }
      const float* p = &scores[4 * column];
      kept[column / 2][column % 2 * 2] = packed_positive<T>(p[0], p[1]);
      kept[column / 2][column % 2 * 2 + 1] = packed_positive<T>(p[2], p[3]);
    }
  }

  /// dP becomes dS = P (mask dP - delta).
  __device__ __forceinline__ void softmax_backward(float (&dp)[32], const float (&signed_p)[32],
                                                   const float (&deltas)[kLaneQueries]) {
#pragma unroll
    for (int column = 0; column < 8; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = signed_p[4 * column + i];
        float& d = dp[4 * column + i];
        const float delta = deltas[2 * column + i % 2];
        if constexpr (kDropout) {
          d = fmaxf(p, 0.0f) * d - fabsf(p) * delta;
        } else {
          d = p * (d - delta);
        }
      }
    }
  }

  /// Adds this key tile's part to a tile of dQ; the last key tile stores it.
  __device__ __forceinline__ void accumulate_dq(float (&sum)[32], int tile, bool is_first,
                                                bool is_last) {
    float4(&own)[8][kWarpThreads] = shared_.dquery[tile][warp_];
    if (!is_first) {
#pragma unroll
      for (int column = 0; column < 8; ++column) {
        const float4 before = own[column][lane_];
        sum[4 * column] += before.x;
        sum[4 * column + 1] += before.y;
        sum[4 * column + 2] += before.z;
        sum[4 * column + 3] += before.w;
      }
    }
    if (is_last) {
      if constexpr (kSplit) {
        store_dq_part(sum, tile);
      } else {
        store_gradient(0, sum, params_.scale, reinterpret_cast<unsigned char*>(&own), tile);
      }
      return;
    }
#pragma unroll
    for (int column = 0; column < 8; ++column) {
      own[column][lane_] = {sum[4 * column], sum[4 * column + 1], sum[4 * column + 2],
                            sum[4 * column + 3]};
    }
  }

  /// The item's part of a tile of dQ, without the factor of the scores.
  __device__ __forceinline__ void store_dq_part(const float (&sum)[32], int tile) {
    const AttentionItem of_item = item();
    const int heads = params_.batch.heads;
    const int head_size = params_.batch.head_size;
    const int first_row = tile * kTileRows + warp_ * kWarpRows + lane_ / 4;
    const int64_t token = (of_item.first_tile / kConsumers) * params_.batch.tokens + of_item.begin;
    float* const to = params_.dquery_parts +
                      ((token + first_row) * heads + of_item.head) * head_size + lane_ % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first_row + 8 * half >= of_item.length) continue;
#pragma unroll
      for (int column = 0; column < 8; ++column) {
        if (8 * column >= head_size) continue;
        const float* pair = &sum[4 * column + 2 * half];
        *reinterpret_cast<float2*>(to + 8 * half * heads * head_size + 8 * column) = {pair[0],
                                                                                      pair[1]};
      }
    }
  }

  const AttentionBwdParams& params_;
  const Fp8Sink& dqkv_fp8_;
  SharedStorage& shared_;
  int warpgroup_;
  int warp_;  // in the warpgroup
  int lane_;
  float scale_;     // scale of the scores for exp2
  int mask_shift_;  // shifts the bit of the lane's second key to the highest bit of a mask word
  int slot_ = 0;    // the item's slot
  uint32_t slot_parity_ = 0;
  int stages_ = 0;      // processed so far
  int key_blocks_ = 0;  // processed so far by this warpgroup
};

}  // namespace bertha::backward
