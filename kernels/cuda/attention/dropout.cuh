#pragma once

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/common/dropout.cuh"

namespace bertha {

/// Bit b: whether key b of word `group` of the mask is kept.
template <class Keys>
__device__ __forceinline__ uint32_t drawn_word(const Keys& keys, uint64_t step, int64_t group,
                                               const AttentionDropout& dropout) {
  return drawn_bits(keys, step, dropout.site, group,
                    [&dropout](int digit) { return dropout.digits[digit]; });
}

/// Philox of the groups below 2^32 at one (seed, step, site), with what all groups have in common
/// kept in registers. The values pass through a shuffle, or the compiler would compute them at each
/// draw.
class RegisterPhilox {
 public:
  /// All lanes call it.
  __device__ __forceinline__ void init(const SeedKeys& keys, uint64_t step, uint32_t site) {
    const PhiloxWords once =
        philox_round(dropout_counter(step, site, 0), keys.low(0), keys.high(0));
    const uint64_t twice = multiply_wide(kPhiloxFactor0, once.lane[0]);
    step_ = warp_uniform(static_cast<uint32_t>(step) ^ keys.high(0));
    low_[1] = warp_uniform(once.lane[1] ^ keys.low(1));
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
  uint32_t low_[kDropoutRounds] = {};   // keys, and what the first two rounds add to them
  uint32_t high_[kDropoutRounds] = {};  // likewise
};

/// The mask words of a warp's 16 rows for 64 keys: lane r + 16 w holds word w of row r.
struct WarpMask {
  uint32_t word = 0;

  __device__ __forceinline__ static int row_of(int lane) { return lane & 15; }
  __device__ __forceinline__ static int word_of(int lane) { return lane >> 4; }
  /// Word `which` (0, 1) of row `row`, in every lane that asks. All lanes call it.
  __device__ __forceinline__ uint32_t of(int row, int which) const {
    return __shfl_sync(kFullWarp, word, row + 16 * which);
  }
};

}  // namespace bertha
