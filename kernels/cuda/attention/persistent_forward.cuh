#pragma once

// What a warp of persistent_forward.cu does with its 16 queries while they walk over the keys and
// values in shared memory. Products are the warpgroup's, the rest is the warp's own.

#include "kernels/cuda/attention/dropout.cuh"
#include "kernels/cuda/attention/work_list.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"
#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha::forward {

inline constexpr int kHeadSize = 64;
inline constexpr int kWarpRows = 16;
inline constexpr int kSteps = kHeadSize / 16;  // of a product over 64 inner indices

inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kInfinity = __builtin_huge_valf();

// The reference of exp2(score - reference) is the maximum over the first tile of keys. It follows the
// running maximum only when a lane's weights of a tile sum up to so much: the products hold what is
// below, in f16 too, and the sums are seldom rescaled.
template <class T>
inline constexpr float kMostWeight = std::is_same_v<T, __half> ? 65504.0f : 0x1p64f;

/// The keys of Philox's rounds in registers. By way of a shuffle, or the compiler would make them anew
/// for every draw.
struct HeldKeys {
  uint32_t lows[kDropoutRounds] = {};
  uint32_t highs[kDropoutRounds] = {};

  __device__ __forceinline__ void hold(const SeedKeys& keys) {
#pragma unroll
    for (int round = 0; round < kDropoutRounds; ++round) {
      lows[round] = __shfl_sync(kFullWarp, keys.low(round), 0);
      highs[round] = __shfl_sync(kFullWarp, keys.high(round), 0);
    }
  }
  __device__ __forceinline__ uint32_t low(int round) const { return lows[round]; }
  __device__ __forceinline__ uint32_t high(int round) const { return highs[round]; }
};

/// Draws the decisions of a warp's 16 rows for the 64 keys of a tile, and stores them: a word a
/// lane.
struct MaskDraw {
  const AttentionDropout& dropout;
  HeldKeys keys;
  uint64_t step = 0;
  uint32_t* words = nullptr;  // this lane's of the next tile
  uint32_t index = 0;         // of that word
  int live_words = 0;         // from it on, those that hold keys of the sequence
  WarpMask mask;              // of the tile

  __device__ __forceinline__ explicit MaskDraw(const AttentionDropout& of) : dropout(of) {}

  __device__ __forceinline__ void begin(const AttentionFwdParams& params, const AttentionItem& item,
                                        int first_row, int lane) {
    const int row = first_row + WarpMask::row_of(lane);
    const auto token = static_cast<uint32_t>(item.begin + row);
    const auto heads = static_cast<uint32_t>(params.batch.heads);
    const auto row_words = static_cast<uint32_t>(params.batch.mask_words);
    index = (token * heads + static_cast<uint32_t>(item.head)) * row_words +
            static_cast<uint32_t>(WarpMask::word_of(lane));
    words = params.mask + index;
    live_words = row < item.length ? (item.length + 31) / 32 - WarpMask::word_of(lane) : 0;
  }
  /// Draws for the next tile, between here and hold(), for the compiler to mix into what stands
  /// there: exponentials leave it room. Elsewhere it would put it between products, which would
  /// start later for it.
  __device__ __forceinline__ void start() {
    uint32_t from_here = index;
    asm volatile("" : "+r"(from_here));
    mask.word = drawn_word(keys, step, from_here, dropout);
  }
  __device__ __forceinline__ void hold() { asm volatile("" : "+r"(mask.word)); }
  __device__ __forceinline__ WarpMask finish() {
    if (live_words > 0) *words = mask.word;
    words += 2;
    index += 2;
    live_words -= 2;
    return mask;
  }
};

/// Scores of keys behind the sequence, of which the tile has `live`, become -infinity.
__device__ __forceinline__ void hide_tail(float (&score)[32], int live, int lane) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= live) score[i] = -kInfinity;
  }
}

/// A warp's 16 queries, its part of the warpgroup's 64, while they walk over the keys.
template <class T, bool kDropout>
struct Queries {
  uint32_t query[kSteps][4];
  float sum[32];       // of exp2(score - reference) * kept * value
  float reference[2];  // in units of log2
  float total[2];      // of exp2(score - reference), this lane's columns

  __device__ __forceinline__ void begin(uint32_t tile, int warp, int lane) {
    const auto offset = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_matrices(query[step], offset.at(tile, warp * kWarpRows, step));
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      reference[half] = -kInfinity;
      total[half] = 0.0f;
    }
  }

  __device__ __forceinline__ void start_scores(float (&score)[32], uint32_t keys) const {
    const uint64_t tile = wgmma_tile<Inner::kColumns>(keys, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma_64x64x16<T, Inner::kColumns>(score, query[step],
                                         wgmma_step<Inner::kColumns>(tile, step), step > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void start_sums(const uint32_t (&probability)[kSteps][4],
                                             uint32_t values) {
    const uint64_t tile = wgmma_tile<Inner::kRows>(values, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma_64x64x16<T, Inner::kRows>(sum, probability[step], wgmma_step<Inner::kRows>(tile, step),
                                      1);
    }
    wgmma_commit();
  }

  /// The scores that a product of the warpgroup gave, by the warp alone: `keys` is the tile.
  __device__ __forceinline__ void score_again(float (&score)[32], uint32_t keys, int lane) const {
    const auto offset = columns_first<kHeadSize>(lane);
    float(&block)[8][4] = reinterpret_cast<float(&)[8][4]>(score);
#pragma unroll
    for (int i = 0; i < 32; ++i) score[i] = 0.0f;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t key[4];
        load_matrices(key, offset.at(keys, 16 * pair, step));
        multiply_add<T>(block[2 * pair], query[step], key[0], key[1]);
        multiply_add<T>(block[2 * pair + 1], query[step], key[2], key[3]);
      }
    }
  }

  /// Moves the references up to the maxima of the scores. What is in `sum` is to be multiplied by
  /// `factor`.
  __device__ __forceinline__ void raise(const float (&score)[32], float scale, float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = fmaxf(score[2 * half], score[2 * half + 1]);
#pragma unroll
      for (int column = 1; column < 8; ++column) {
        const float* pair = &score[4 * column + 2 * half];
        top = fmaxf(top, fmaxf(pair[0], pair[1]));
      }
      top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kFullWarp, top, 2));
      const float raised = fmaxf(reference[half], top * scale);
      factor[half] = exp2_approximate(reference[half] - raised);
      reference[half] = raised;
      total[half] *= factor[half];
    }
  }

  /// From scores to weights exp2(score - reference), and this lane's sums of these.
  __device__ __forceinline__ void exponentiate(float (&score)[32], float scale,
                                               float (&fresh)[2]) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int half = i / 2 % 2;
      score[i] = exp2_approximate(score[i] * scale - reference[half]);
      fresh[half] = i == 2 * half ? score[i] : fresh[half] + score[i];
    }
  }

  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] *= factor[i / 2 % 2];
  }

  /// The left operand of the product with the values.
  __device__ __forceinline__ static void pack(uint32_t (&probability)[kSteps][4],
                                              const float (&weight)[32], const WarpMask& mask,
                                              int lane) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      probability[i / 4][i % 4] = packed<T>(weight[2 * i], weight[2 * i + 1]);
    }
    if constexpr (kDropout) drop(probability, mask, lane);
  }

  /// Zeroes the dropped probabilities. Columns 2c, 2c + 1 of 8 keys n are bits 8n + 2c and 8n + 2c
  /// + 1 of a word of the mask: shifted so that they top byte n, they become masks with one
  /// instruction. Shifted by multiplying, which other pipes do than all the logic here.
  __device__ __forceinline__ static void drop(uint32_t (&probability)[kSteps][4],
                                              const WarpMask& mask, int lane) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t word = mask.of(half * 8 + lane / 4, which);
        const uint32_t even = word * (128u >> (lane % 4 * 2));
        const uint32_t odd = word * (64u >> (lane % 4 * 2));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          probability[2 * which + n / 2][half + n % 2 * 2] &= masks_of_byte(even, odd, n);
        }
      }
    }
  }

  /// Writes the rows that the sequence has, by way of the warp's own `tile` rows: 16 of them with one
  /// copy, which leaves while the warp goes on.
  __device__ __forceinline__ void store(const AttentionFwdParams& params, const AttentionItem& item,
                                        int first_row, uint32_t tile, const CUtensorMap& out_map,
                                        int warp, int lane) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = total[half];
      all += __shfl_xor_sync(kFullWarp, all, 1);
      all += __shfl_xor_sync(kFullWarp, all, 2);
      factor[half] = reciprocal_approximate(all * params.dropout.keep);
      const int row = first_row + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < item.length) {
        params.lse[item.head * params.batch.tokens + item.begin + row] =
            (reference[half] + log2_approximate(all)) * kLn2;
      }
    }
    if (lane == 0) wait_for_stores();
    __syncwarp();  // the rows of the tile before are out
    const auto offset = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t block[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &sum[8 * step + 2 * i];
        block[i] = packed<T>(pair[0] * factor[i % 2], pair[1] * factor[i % 2]);
      }
      store_matrices(offset.at(tile, warp * kWarpRows, step), block);
    }
    if (first_row + kWarpRows <= item.length) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        store_box_async(out_map, item.head * kHeadSize, item.begin + first_row,
                        tile + warp * kWarpRows * 2 * kHeadSize);
      }
      return;
    }
    __syncwarp();
    const int stride = params.batch.heads * kHeadSize;
    T* rows = static_cast<T*>(params.out) + int64_t{item.begin} * stride + item.head * kHeadSize;
    constexpr int kChunks = kHeadSize / 8;
#pragma unroll
    for (int i = 0; i < kWarpRows * kChunks / kWarpThreads; ++i) {
      const int row = i * (kWarpThreads / kChunks) + lane / kChunks;
      const int chunk = lane % kChunks;
      const uint4 values = load_16(tile + chunk_offset<kHeadSize>(warp * kWarpRows + row, chunk));
      const int target = first_row + row;
      if (target < item.length) {
        *reinterpret_cast<uint4*>(rows + (target * stride + chunk * 8)) = values;
      }
    }
  }
};

}  // namespace bertha::forward
