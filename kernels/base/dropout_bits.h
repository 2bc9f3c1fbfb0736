#pragma once

#include "kernels/base/philox.h"

namespace bertha {

// Which elements a dropout drops: 32 decisions at a time, from few random words.
//
// An element is dropped when a 32-bit random number of its own is below probability * 2^32. The
// numbers of 32 neighbours lie across the words: bit b of word k is the k-th highest digit of the
// number of neighbour b. Comparing from the highest digit down settles all 32 after about
// log2(32) + 1.3 words where a word per element would take 32, and the rate is as exact.

/// The fewest rounds with which Philox4x32 passes BigCrush (Salmon et al. 2011, table 2).
constexpr int kDropoutRounds = 7;
constexpr int kDropoutGroup = 32;  // elements decided together

/// An element is dropped when its number is below this: the realized rate is exact to 2^-32.
BERTHA_HOST_DEVICE inline uint32_t drop_threshold(float probability) {
  return static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0);
}

/// 32 comparisons in progress. Bit b of each field belongs to element b of the group.
struct DropoutDecision {
  uint32_t dropped = 0;
  uint32_t undecided = ~0u;

  /// The next digit of the 32 numbers, and that of the threshold.
  BERTHA_HOST_DEVICE void compare(uint32_t digits, bool threshold_digit) {
    if (threshold_digit) {
      dropped |= undecided & ~digits;
      undecided &= digits;
    } else {
      undecided &= ~digits;
    }
  }
};

/// What Philox makes dropout_digits() from.
BERTHA_HOST_DEVICE inline PhiloxWords dropout_counter(uint64_t step, uint32_t site, int64_t group,
                                                      int block) {
  const uint64_t index = static_cast<uint64_t>(group) * 8 + static_cast<uint64_t>(block);
  return PhiloxWords{{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), site,
                      static_cast<uint32_t>(step)}};
}

/// Digits 4 * block .. 4 * block + 3 of the numbers of group `group`.
BERTHA_HOST_DEVICE inline PhiloxWords dropout_digits(uint64_t seed, uint64_t step, uint32_t site,
                                                     int64_t group, int block) {
  return philox4x32<kDropoutRounds>(dropout_counter(step, site, group, block), seed);
}

/// Compares block `block` of the digits with those of the threshold.
BERTHA_HOST_DEVICE inline void compare_digits(DropoutDecision& decision, const PhiloxWords& digits,
                                              int block, uint32_t threshold) {
  for (int lane = 0; lane < 4; ++lane) {
    decision.compare(digits.lane[lane], ((threshold >> (31 - 4 * block - lane)) & 1u) != 0);
  }
}

/// Bit b: whether element 32 * group + b is KEPT, at (seed, step, site).
///
/// Exact     bit for bit the same everywhere. Numbers equal to the threshold are kept.
BERTHA_HOST_DEVICE inline uint32_t kept_bits(uint64_t seed, uint64_t step, uint32_t site,
                                             int64_t group, uint32_t threshold) {
  DropoutDecision decision;
  for (int block = 0; block < 8 && decision.undecided != 0; ++block) {
    compare_digits(decision, dropout_digits(seed, step, site, group, block), block, threshold);
  }
  return ~decision.dropped;
}

BERTHA_HOST_DEVICE inline bool is_kept(uint64_t seed, uint64_t step, uint32_t site, int64_t element,
                                       float probability) {
  const uint32_t bits =
      kept_bits(seed, step, site, element / kDropoutGroup, drop_threshold(probability));
  return ((bits >> (element % kDropoutGroup)) & 1u) != 0;
}

}  // namespace bertha
