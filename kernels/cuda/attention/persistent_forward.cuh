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

/// Which elements a kernel drops. With the usual threshold its comparisons take half the instructions.
enum class Drop { kNothing, kUsual, kAny };
inline constexpr uint32_t kUsualThreshold = drop_threshold(0.1f);

/// Draws the decisions of a warp's 16 rows for the 64 keys of a tile, and stores them: a word a
/// lane. Lane 4 g + c has row g + c % 2 * 8 and word c / 2: the four that its own rows of a product
/// take are those of its neighbours.
template <Drop kDrop>
class MaskDraw {
 public:
  __device__ __forceinline__ explicit MaskDraw(const AttentionFwdParams& of)
      : dropout_(of.dropout), words_(of.mask) {
    if constexpr (kDrop != Drop::kNothing) {
      philox_.hold(SeedKeys{dropout_.random[0]}, dropout_.random[1], dropout_.site);
    }
  }

  __device__ __forceinline__ void begin(const AttentionBatch& batch, const AttentionItem& item,
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
  /// Draws for the tile, behind `weight`: its sign, which is 0, goes into the counter. Between the
  /// exponentials there is time, but before them the FMAs of their arguments want the pipe of the
  /// wide multiplications, and each takes 20 clocks there. hold() comes behind the exponentials.
  __device__ __forceinline__ void draw(float weight) {
    constexpr uint32_t kSign = 0x80000000u;
    word_ = drawn(index_ | (__float_as_uint(weight) & kSign));
  }
  __device__ __forceinline__ void hold() { asm volatile("" : "+r"(word_)); }
  /// Stores what was drawn and goes to the next tile. Gives the masks of this lane's probabilities,
  /// two to a word.
  ///
  /// Columns 2c, 2c + 1 of 8 keys n are bits 8n + 2c and 8n + 2c + 1 of a word: shifted so that they
  /// top byte n, they become masks with one instruction. Shifted by multiplying, which other pipes
  /// do than all the logic here.
  __device__ __forceinline__ void finish(uint32_t (&kept)[kSteps][4], int lane) {
    if (index_ < end_) words_[index_] = word_;
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
    if constexpr (kDrop == Drop::kUsual) return kept_of_words<kUsualThreshold>(random);
    return kept_of_words(random, [this](int digit) { return dropout_.digits[digit]; });
  }

  const AttentionDropout& dropout_;
  uint32_t* words_;
  HeldPhilox philox_;
  uint32_t index_ = 0;  // in words_, of the tile
  uint32_t end_ = 0;    // of the words that hold keys of the sequence
  uint32_t word_ = 0;   // of the tile, once drawn
};

/// Scores of keys behind the sequence, of which the tile has `live`, become -infinity.
__device__ __forceinline__ void hide_tail(float (&score)[32], int live, int lane) {
  const int of_lane = live - lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (i / 4 * 8 + i % 2 >= of_lane) score[i] = -kInfinity;
  }
}

/// A warp's 16 queries, its part of the warpgroup's 64, while they walk over the keys.
template <class T>
struct Queries {
  uint32_t query[kSteps][4];
  float sum[32];       // of exp2(score - reference) * kept * value
  float reference[2];  // in units of log2
  float total[2];      // of exp2(score - reference), this lane's columns, of the tiles before

  __device__ __forceinline__ void begin(uint32_t tile, int warp, int lane) {
    const auto offset = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_matrices(query[step], offset.at(tile, warp * kWarpRows, step));
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] = 0.0f;
    total[0] = 0.0f;
    total[1] = 0.0f;
  }

  /// `keys`, and `values` below: descriptors of tiles.
  __device__ __forceinline__ void start_scores(float (&score)[32], uint64_t keys) const {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma_64x64x16<T, Inner::kColumns>(score, query[step],
                                         wgmma_step<Inner::kColumns>(keys, step), step > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void start_sums(const uint32_t (&probability)[kSteps][4],
                                             uint64_t values) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma_64x64x16<T, Inner::kRows>(sum, probability[step],
                                      wgmma_step<Inner::kRows>(values, step), 1);
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
  /// The first references: the maxima of the first scores.
  __device__ __forceinline__ void refer(const float (&score)[32], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) reference[half] = maximum(score, half, scale);
  }
  /// Moves the references up to the maxima of the scores, and the sums with them.
  __device__ __forceinline__ void raise(const float (&score)[32], float scale) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float raised = fmaxf(reference[half], maximum(score, half, scale));
      factor[half] = exp2_approximate(reference[half] - raised);
      reference[half] = raised;
      total[half] *= factor[half];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) sum[i] *= factor[i / 2 % 2];
  }

  /// From scores to weights exp2(score - reference). `sums`: `total` with those of this lane. Calls
  /// between(weight) behind the first weights.
  template <class Between>
  __device__ __forceinline__ void exponentiate(float (&score)[32], float scale, float (&sums)[2],
                                               const Between& between) const {
    constexpr int kFirst = 16;
    sums[0] = total[0];
    sums[1] = total[1];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int half = i / 2 % 2;
      score[i] = exp2_approximate(score[i] * scale - reference[half]);
      sums[half] += score[i];
      if (i == kFirst - 1) between(sums[half]);
    }
  }

  /// Weights as the left operand of the product with the values.
  __device__ __forceinline__ static void pack(uint32_t (&probability)[kSteps][4],
                                              const float (&weight)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      probability[i / 4][i % 4] = packed<T>(weight[2 * i], weight[2 * i + 1]);
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
