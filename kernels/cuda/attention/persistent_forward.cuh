#pragma once

// The computation of a warp of persistent_forward.cu for its 16 queries. The warpgroup issues GEMMs
// together; each warp does the rest alone.

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/dropout.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/attention/work_list.cuh"
#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha::forward {

inline constexpr int kHeadSize = 64;  // columns of tiles: zeros beyond narrower heads
inline constexpr int kWarpRows = 16;
inline constexpr int kSteps = kHeadSize / 16;  // of a GEMM over 64 inner indices

// The reference of P = exp2(score - reference) is the maximum over the first key tile. It is raised
// only when a lane's row sum reaches this bound: P below it fits into T, and O is seldom rescaled.
template <class T>
inline constexpr float kMaxRowSum = std::is_same_v<T, __half> ? 65504.0f : 0x1p64f;

/// With the default threshold as a compile-time constant, drawing needs half the comparisons.
enum class DropoutKind { kNone, kDefault, kAny };
inline constexpr uint32_t kDefaultThreshold = drop_threshold(0.1f);

/// Philox of the groups below 2^32 at one (seed, step, site), with what all groups have in common
/// kept in registers. The values pass through a shuffle, or the compiler would compute them at each
/// draw.
class RegisterPhilox {
 public:
  /// All lanes call it.
  __device__ __forceinline__ void init(const SeedKeys& keys, uint64_t step, uint32_t site) {
    const PhiloxWords once =
        philox_round(dropout_counter(step, site, 0), keys.low(0), keys.high(0));
    const uint64_t twice = multiply_wide(kPhiloxFactor0, once.elem[0]);
    step_ = warp_uniform(static_cast<uint32_t>(step) ^ keys.high(0));
    low_[1] = warp_uniform(once.elem[1] ^ keys.low(1));
    high_[1] = warp_uniform(static_cast<uint32_t>(twice >> 32) ^ keys.high(1));
    high_[2] = warp_uniform(static_cast<uint32_t>(twice) ^ keys.high(2));
#pragma unroll
    for (int round = 2; round < kDropoutRounds; ++round) {
      low_[round] = warp_uniform(keys.low(round));
      if (round > 2) high_[round] = warp_uniform(keys.high(round));
    }
  }
  __device__ __forceinline__ PhiloxWords words(uint32_t group) const {
    const uint64_t first = multiply_wide(kPhiloxFactor0, group);
    const uint64_t second =
        multiply_wide(kPhiloxFactor1, static_cast<uint32_t>(first >> 32) ^ step_);
    PhiloxWords words{{static_cast<uint32_t>(second >> 32) ^ low_[1], static_cast<uint32_t>(second),
                       static_cast<uint32_t>(first) ^ high_[1], 0}};  // 0: it is in high_[2]
#pragma unroll
    for (int round = 2; round < kDropoutRounds; ++round) {
      words = philox_round(words, low_[round], high_[round]);
    }
    return words;
  }

 private:
  __device__ __forceinline__ static uint32_t warp_uniform(uint32_t word) {
    return __shfl_sync(kFullWarp, word, 0);
  }

  uint32_t step_ = 0;
  uint32_t low_[kDropoutRounds] = {};   // keys, with the additions of the first two rounds
  uint32_t high_[kDropoutRounds] = {};  // as low_
};

/// Draws the dropout bits of a warp's 16 rows for the 64 keys of a tile and stores them, 32 bits a
/// lane: lane 4 g + c has row g + c % 2 * 8 and word c / 2. The four words that the lane's own
/// accumulators need are in the lanes of its quad.
template <DropoutKind kDropout>
class DropoutMask {
 public:
  __device__ __forceinline__ explicit DropoutMask(const AttentionFwdParams& of)
      : dropout_(of.dropout), mask_(of.mask) {
    if constexpr (kDropout != DropoutKind::kNone) {
      philox_.init(SeedKeys{dropout_.random[0]}, dropout_.random[1], dropout_.site);
    }
  }

  __device__ __forceinline__ void start_rows(const AttentionBatch& batch, const AttentionItem& item,
                                             int first_row, int lane) {
    const int row = first_row + lane / 4 + lane % 2 * 8;
    const int first_word = lane % 4 / 2;
    const auto token = static_cast<uint32_t>(item.begin + row);
    const auto heads = static_cast<uint32_t>(batch.heads);
    const auto row_words = static_cast<uint32_t>(batch.mask_words);
    index_ = (token * heads + static_cast<uint32_t>(item.head)) * row_words +
             static_cast<uint32_t>(first_word);
    const int live = row < item.length ? (item.length + 31) / 32 - first_word : 0;
    end_ = index_ + static_cast<uint32_t>(max(live, 0));
  }
  /// Draws for the tile, not before `partial_sum` is there: its sign bit, which is 0, goes into the
  /// counter. Among the exponentials issue slots are free; before them the FMAs of their arguments
  /// need the pipe of the wide multiplications. Call hold() after the exponentials.
  __device__ __forceinline__ void draw(float partial_sum) {
    constexpr uint32_t kSign = 0x80000000u;
    word_ = drawn(index_ | (__float_as_uint(partial_sum) & kSign));
  }
  __device__ __forceinline__ void hold() { asm volatile("" : "+r"(word_)); }
  /// Stores the bits of the tile and advances to the next one. `kept`: masks of this lane's packed
  /// probabilities. Columns 2c, 2c + 1 of 8 keys n are bits 8n + 2c and 8n + 2c + 1 of a word:
  /// shifted to the top of byte n, one PRMT makes a mask of them. The shifts are multiplications,
  /// which do not use the pipe of the logic instructions.
  __device__ __forceinline__ void finish(uint32_t (&kept)[kSteps][4], int lane) {
    if (index_ < end_) mask_[index_] = word_;
    index_ += 2;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t of_row = __shfl_sync(kFullWarp, word_, half + 2 * which, 4);
        const uint32_t even = of_row * (128u >> (lane % 4 * 2));
        const uint32_t odd = of_row * (64u >> (lane % 4 * 2));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          kept[2 * which + n / 2][half + n % 2 * 2] = masks_of_byte(even, odd, n);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ uint32_t drawn(uint32_t group) const {
    const PhiloxWords random = philox_.words(group);
    if constexpr (kDropout == DropoutKind::kDefault)
      return kept_of_words<kDefaultThreshold>(random);
    return kept_of_words(random, [this](int digit) { return dropout_.digits[digit]; });
  }

  const AttentionDropout& dropout_;
  uint32_t* mask_;
  RegisterPhilox philox_;
  uint32_t index_ = 0;  // in mask_, of the tile
  uint32_t end_ = 0;    // end of the words with keys of the sequence
  uint32_t word_ = 0;   // the tile's word, once drawn
};

/// Scores of keys past the sequence become -infinity; the tile has `live` keys of it.
__device__ __forceinline__ void mask_tail(float (&score)[32], int live, int lane) {
  const int of_lane = live - lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (i / 4 * 8 + i % 2 >= of_lane) score[i] = -kInfinity;
  }
}

/// A warp's 16 of the warpgroup's 64 queries, with accumulators and softmax state.
template <class T>
struct QueryRows {
  uint32_t q[kSteps][4];
  float acc_o[32];     // sums of exp2(score - reference) * kept * value
  float reference[2];  // in units of log2
  float row_sum[2];    // sums of exp2(score - reference) over this lane's columns of earlier tiles

  __device__ __forceinline__ void load_q(uint32_t tile, int warp, int lane) {
    const auto offset = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ldmatrix_x4(q[step], offset.at(tile, warp * kWarpRows, step));
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) acc_o[i] = 0.0f;
    row_sum[0] = 0.0f;
    row_sum[1] = 0.0f;
  }

  /// Issues S = Q K^T; `keys`, and `values` below: wgmma descriptors of tiles.
  __device__ __forceinline__ void gemm_qk(float (&score)[32], uint64_t keys) const {
    wgmma_fence();
    wgmma_64x64x64<T, Inner::kColumns, false>(score, q, keys);
  }

  __device__ __forceinline__ void gemm_pv(const uint32_t (&p)[kSteps][4], uint64_t values) {
    wgmma_fence();
    wgmma_64x64x64<T, Inner::kRows, true>(acc_o, p, values);
  }

  /// S of gemm_qk() again, by this warp alone with mma.sync; `keys`: address of the tile.
  __device__ __forceinline__ void gemm_qk_by_warp(float (&score)[32], uint32_t keys,
                                                  int lane) const {
    const auto offset = columns_first<kHeadSize>(lane);
    float(&block)[8][4] = reinterpret_cast<float(&)[8][4]>(score);
#pragma unroll
    for (int i = 0; i < 32; ++i) score[i] = 0.0f;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t key[4];
        ldmatrix_x4(key, offset.at(keys, 16 * pair, step));
        mma_m16n8k16<T>(block[2 * pair], q[step], key[0], key[1]);
        mma_m16n8k16<T>(block[2 * pair + 1], q[step], key[2], key[3]);
      }
    }
  }

  /// Maximum of the scores of a row, times scale.
  __device__ __forceinline__ static float maximum(const float (&score)[32], int half, float scale) {
    float top = fmaxf(score[2 * half], score[2 * half + 1]);
#pragma unroll
    for (int column = 1; column < 8; ++column) {
      const float* pair = &score[4 * column + 2 * half];
      top = fmaxf(top, fmaxf(pair[0], pair[1]));
    }
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 2));
    return top * scale;
  }
  /// Maxima of the first scores.
  __device__ __forceinline__ void init_reference(const float (&score)[32], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) reference[half] = maximum(score, half, scale);
  }
  /// Raises the references to the maxima of the scores, and rescales O and the row sums.
  __device__ __forceinline__ void rescale(const float (&score)[32], float scale) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float raised = fmaxf(reference[half], maximum(score, half, scale));
      factor[half] = exp2_approximate(reference[half] - raised);
      reference[half] = raised;
      row_sum[half] *= factor[half];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) acc_o[i] *= factor[i / 2 % 2];
  }

  /// Turns scores into P = exp2(score - reference). `row_sums`: `row_sum` plus this lane's P. Calls
  /// between(a sum) after the first 16.
  template <class Between>
  __device__ __forceinline__ void softmax_exp(float (&score)[32], float scale, float (&row_sums)[2],
                                              const Between& between) const {
    constexpr int kFirst = 16;
    row_sums[0] = row_sum[0];
    row_sums[1] = row_sum[1];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int half = i / 2 % 2;
      score[i] = exp2_approximate(score[i] * scale - reference[half]);
      row_sums[half] += score[i];
      if (i == kFirst - 1) between(row_sums[half]);
    }
  }

  /// P as the left operand of gemm_pv().
  __device__ __forceinline__ static void pack_p(uint32_t (&p)[kSteps][4],
                                                const float (&score)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      p[i / 4][i % 4] = packed<T>(score[2 * i], score[2 * i + 1]);
    }
  }

  /// Writes O / row sum and lse of the rows of the sequence, through the warp's own rows of `tile`;
  /// 16 rows by one TMA store in flight, fewer by ordinary stores.
  __device__ __forceinline__ void store_out(const AttentionFwdParams& params,
                                            const AttentionItem& item, int first_row, uint32_t tile,
                                            const CUtensorMap& out_map, int warp, int lane) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = row_sum[half];
      all += __shfl_xor_sync(kFullWarp, all, 1);
      all += __shfl_xor_sync(kFullWarp, all, 2);
      factor[half] = reciprocal_approximate(all * params.dropout.keep);
      const int row = first_row + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < item.length) {
        params.lse[item.head * params.batch.tokens + item.begin + row] =
            (reference[half] + log2_approximate(all)) * kLn2;
      }
    }
    if (lane == 0) bulk_store_wait();
    __syncwarp();  // TMA has read the rows of the tile before
    const auto offset = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t block[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &acc_o[8 * step + 2 * i];
        block[i] = packed<T>(pair[0] * factor[i % 2], pair[1] * factor[i % 2]);
      }
      stmatrix_x4(offset.at(tile, warp * kWarpRows, step), block);
    }
    if (first_row + kWarpRows <= item.length) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        tma_store_head(out_map, item.head, item.begin + first_row,
                       tile + warp * kWarpRows * 2 * kHeadSize);
      }
      return;
    }
    __syncwarp();
    const int head_size = params.batch.head_size;
    const int stride = params.batch.heads * head_size;
    T* rows = static_cast<T*>(params.out) + int64_t{item.begin} * stride + item.head * head_size;
    constexpr int kChunks = kHeadSize / 8;
#pragma unroll
    for (int i = 0; i < kWarpRows * kChunks / kWarpThreads; ++i) {
      const int row = i * (kWarpThreads / kChunks) + lane / kChunks;
      const int chunk = lane % kChunks;
      const uint4 values =
          load_shared_16(tile + chunk_offset<kHeadSize>(warp * kWarpRows + row, chunk));
      const int target = first_row + row;
      if (target < item.length && chunk * 8 < head_size) {
        *reinterpret_cast<uint4*>(rows + (target * stride + chunk * 8)) = values;
      }
    }
  }
};

}  // namespace bertha::forward
