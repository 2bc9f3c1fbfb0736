#pragma once

#include "kernels/base/philox.h"

namespace bertha {

// Which elements a dropout drops: 32 decisions at a time, from few random words.
//
// Each element has a random number of 24 bits and is dropped when that is below probability * 2^24.
// One Philox block of four words serves 32 neighbours; a word per element would take eight blocks.
// Digits (bits) come in groups of four, the highest first. Group 0 of neighbour b is bit b of words
// 0, 1, 2, 3. Group f > 0 is bit b + turn(1) + ... + turn(f) of the mixed words 0, 1, 2, 3 (odd f)
// or 3, 2, 1, 0 (even f), where mixed word w is word w xor (word w + 1 rotated right by mix(w)).
// Indices of bits and words wrap around.
//
// Exact     The 24 digits of a number are independent. Of two neighbours' numbers, so are the first
//           k and l digits together wherever k + l <= 16; each dependence beyond that changes how
//           often the two are dropped together by at most 2^-17. mix and turn were searched for
//           this; tests/kernels/dropout_test.cpp proves it.

/// The fewest rounds with which Philox4x32 passes BigCrush (Salmon et al. 2011, table 2).
constexpr int kDropoutRounds = 7;
constexpr int kDropoutGroup = 32;  // elements decided together
constexpr int kDropoutDigits = 24;
constexpr int kDropoutFours = kDropoutDigits / 4;

/// mix(word) of the above.
BERTHA_HOST_DEVICE constexpr int dropout_mix(int word) {
  constexpr int kMix[] = {5, 19, 28, 26};
  return kMix[word];
}
/// turn(four), four from 1.
BERTHA_HOST_DEVICE constexpr int dropout_turn(int four) {
  constexpr int kTurn[] = {0, 25, 10, 6, 27, 12};
  return kTurn[four];
}
/// The mixed word of digit 4 * four + place, four from 1.
BERTHA_HOST_DEVICE constexpr int dropout_word(int four, int place) {
  return four % 2 == 1 ? place : 3 - place;
}

/// An element is dropped when its number is below this: the realized rate is exact to 2^-25.
BERTHA_HOST_DEVICE constexpr uint32_t drop_threshold(float probability) {
  return static_cast<uint32_t>(static_cast<double>(probability) * (1 << kDropoutDigits) + 0.5);
}

/// Whether digit `digit` of the threshold is 1.
BERTHA_HOST_DEVICE constexpr bool threshold_digit(uint32_t threshold, int digit) {
  return ((threshold >> (kDropoutDigits - 1 - digit)) & 1u) != 0;
}

/// What Philox makes the words of a group from.
BERTHA_HOST_DEVICE inline PhiloxWords dropout_counter(uint64_t step, uint32_t site, int64_t group) {
  const uint64_t index = static_cast<uint64_t>(group);
  return PhiloxWords{{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), site,
                      static_cast<uint32_t>(step)}};
}

/// The word whose bit b is bit (b + by) % 32 of `word`; by in 1..31.
BERTHA_HOST_DEVICE constexpr uint32_t turned(uint32_t word, int by) {
  return word >> by | word << (32 - by);
}

/// Bit b: whether element 32 * group + b is KEPT, at (seed, step, site).
///
/// Exact     bit for bit the same everywhere. Numbers equal to the threshold are kept.
BERTHA_HOST_DEVICE inline uint32_t kept_bits(uint64_t seed, uint64_t step, uint32_t site,
                                             int64_t group, uint32_t threshold) {
  const PhiloxWords words = philox4x32<kDropoutRounds>(dropout_counter(step, site, group), seed);
  uint32_t below = 0;  // whether below the threshold in the digits so far, from the lowest up
  const auto compare = [&](uint32_t digits, int digit) {
    below = threshold_digit(threshold, digit) ? ~digits | below : ~digits & below;
  };
  for (int four = kDropoutFours - 1; four > 0; --four) {
    for (int place = 3; place >= 0; --place) {
      const int word = dropout_word(four, place);
      compare(words.elem[word] ^ turned(words.elem[(word + 1) % 4], dropout_mix(word)),
              4 * four + place);
    }
    below = turned(below, dropout_turn(four));
  }
  for (int digit = 3; digit >= 0; --digit) compare(words.elem[digit], digit);
  return ~below;
}

BERTHA_HOST_DEVICE inline bool is_kept(uint64_t seed, uint64_t step, uint32_t site, int64_t element,
                                       float probability) {
  const uint32_t bits =
      kept_bits(seed, step, site, element / kDropoutGroup, drop_threshold(probability));
  return ((bits >> (element % kDropoutGroup)) & 1u) != 0;
}

}  // namespace bertha
