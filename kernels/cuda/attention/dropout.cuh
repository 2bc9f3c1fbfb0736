#pragma once

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/dropout.cuh"

namespace bertha {

/// Bit b: whether key b of word `group` of the mask is kept.
template <class Keys>
__device__ __forceinline__ uint32_t drawn_word(const Keys& keys, uint64_t step, int64_t group,
                                               const AttentionDropout& dropout) {
  return drawn_bits(keys, step, dropout.site, group,
                    [&dropout](int digit) { return dropout.digits[digit]; });
}

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
