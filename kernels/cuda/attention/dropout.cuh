#pragma once

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/dropout.cuh"

namespace bertha {

/// kept_bits() in two steps, so that the first is straight-line code that the compiler mixes into
/// the tensor-core instructions around it.
struct LaneDraw {
  static constexpr int kSureBlocks = kSureDigits / 4;
  DropoutDecision decision;

  /// Compares from the lowest of the sure digits up, where a digit takes one instruction and not
  /// two: where it differs from the threshold's it decides, else what was decided before stands.
  __device__ __forceinline__ void start(uint64_t seed, uint64_t step, int64_t group,
                                        const AttentionDropout& dropout) {
    uint32_t below = 0;
    uint32_t equal = ~0u;
#pragma unroll
    for (int block = kSureBlocks - 1; block >= 0; --block) {
      const PhiloxWords words = dropout_digits(seed, step, dropout.site, group, block);
#pragma unroll
      for (int lane = 3; lane >= 0; --lane) {
        const uint32_t ours = words.lane[lane];
        const uint32_t limit = dropout.digits[4 * block + lane];
        below = logic_of_three<0x8E>(ours, limit, below);  // limit ? ~ours | below : ~ours & below
        equal = logic_of_three<0x82>(ours, limit, equal);  // equal & ~(ours ^ limit)
      }
    }
    decision.dropped = below;
    decision.undecided = equal;
  }

  /// The same arguments again.
  __device__ __forceinline__ uint32_t finish(uint64_t seed, uint64_t step, int64_t group,
                                             const AttentionDropout& dropout) {
#pragma unroll 1
    for (int block = kSureBlocks; block < 8 && decision.undecided != 0; ++block) {
      compare_digits(decision, dropout_digits(seed, step, dropout.site, group, block), block,
                     dropout.threshold);
    }
    return ~decision.dropped;
  }
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
