#pragma once

#include "kernels/base/arguments.h"
#include "kernels/base/dropout_bits.h"

namespace bertha {

/// An operation's dropout as an argument of kernels: by value, with {seed, step} still in device
/// memory.
struct DeviceDropout {
  const uint64_t* random = nullptr;  // {seed, step}; null at probability 0
  uint32_t site = 0;
  uint32_t threshold = 0;
  float keep_factor = 1.0f;  // factor of kept elements: 1 / (1 - p)

  BERTHA_HOST_DEVICE bool active() const { return random != nullptr; }
};

inline DeviceDropout device_dropout(const Dropout& dropout) {
  if (dropout.probability == 0.0f) return {};
  return {.random = dropout.random.as<uint64_t>(),
          .site = dropout.site,
          .threshold = drop_threshold(dropout.probability),
          .keep_factor = 1.0f / (1.0f - dropout.probability)};
}

/// Bitwise function of three words; bit 4a + 2b + c of `kTable` is its value at (a, b, c). What
/// nvcc makes of the same in operators takes two instructions each.
template <uint32_t kTable>
__device__ __forceinline__ uint32_t logic_of_three(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return result;
}

/// Keys of the rounds of Philox, computed from the seed when needed.
struct SeedKeys {
  uint64_t seed;

  __device__ __forceinline__ uint32_t low(int round) const {
    return static_cast<uint32_t>(seed) + static_cast<uint32_t>(round) * kPhiloxKeyStepLow;
  }
  __device__ __forceinline__ uint32_t high(int round) const {
    return static_cast<uint32_t>(seed >> 32) + static_cast<uint32_t>(round) * kPhiloxKeyStepHigh;
  }
};

/// The mixed words of kernels/base/dropout_bits.h.
__device__ __forceinline__ void mix_words(uint32_t (&mixed)[4], const PhiloxWords& words) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const uint32_t next = words.elem[(word + 1) % 4];
    mixed[word] = words.elem[word] ^ __funnelshift_r(next, next, dropout_mix(word));
  }
}

/// kept_bits of kernels/base/dropout_bits.h, bit for bit, from the words of the group.
/// `limit(digit)`: all ones if that digit of the threshold is 1, else 0.
///
/// From the lowest digit up, "below the threshold" is the majority of (digit is 0, threshold's
/// digit is 1, below it in the digits underneath): one instruction per digit, and no branch.
template <class Limit>
__device__ __forceinline__ uint32_t kept_of_words(const PhiloxWords& words, const Limit& limit) {
  uint32_t mixed[4];
  mix_words(mixed, words);
  uint32_t below = 0;
  const auto compare = [&](uint32_t digits, int digit) {
    // limit ? ~digits | below : ~digits & below
    below = logic_of_three<0x8E>(digits, limit(digit), below);
  };
#pragma unroll
  for (int four = kDropoutFours - 1; four > 0; --four) {
#pragma unroll
    for (int place = 3; place >= 0; --place) {
      compare(mixed[dropout_word(four, place)], 4 * four + place);
    }
    below = __funnelshift_r(below, below, dropout_turn(four));
  }
#pragma unroll
  for (int digit = 3; digit >= 0; --digit) compare(words.elem[digit], digit);
  return ~below;
}

/// As a table of logic_of_three(): below the threshold from digit `digit` down, of that digit, the
/// next one, and "below it in the digits underneath".
constexpr uint32_t below_of_two(uint32_t threshold, int digit) {
  uint32_t table = 0;
  for (uint32_t at = 0; at < 8; ++at) {
    bool below = (at & 1) != 0;
    below = threshold_digit(threshold, digit + 1) ? (at & 2) == 0 || below : (at & 2) == 0 && below;
    below = threshold_digit(threshold, digit) ? (at & 4) == 0 || below : (at & 4) == 0 && below;
    if (below) table |= 1u << at;
  }
  return table;
}

template <uint32_t kThreshold, int kFour>
__device__ __forceinline__ uint32_t below_of_four(const uint32_t (&mixed)[4], uint32_t below) {
  below = logic_of_three<below_of_two(kThreshold, 4 * kFour + 2)>(
      mixed[dropout_word(kFour, 2)], mixed[dropout_word(kFour, 3)], below);
  below = logic_of_three<below_of_two(kThreshold, 4 * kFour)>(mixed[dropout_word(kFour, 0)],
                                                              mixed[dropout_word(kFour, 1)], below);
  return __funnelshift_r(below, below, dropout_turn(kFour));
}

/// The same for a compile-time threshold: two digits per instruction.
template <uint32_t kThreshold>
__device__ __forceinline__ uint32_t kept_of_words(const PhiloxWords& words) {
  static_assert(kDropoutFours == 6);
  uint32_t mixed[4];
  mix_words(mixed, words);
  uint32_t below = below_of_four<kThreshold, 5>(mixed, 0);
  below = below_of_four<kThreshold, 4>(mixed, below);
  below = below_of_four<kThreshold, 3>(mixed, below);
  below = below_of_four<kThreshold, 2>(mixed, below);
  below = below_of_four<kThreshold, 1>(mixed, below);
  below = logic_of_three<below_of_two(kThreshold, 2)>(words.elem[2], words.elem[3], below);
  return logic_of_three<~below_of_two(kThreshold, 0) & 0xFF>(words.elem[0], words.elem[1], below);
}

/// kept_bits of kernels/base/dropout_bits.h. `keys`: as SeedKeys. `limit`: as in kept_of_words().
template <class Keys, class Limit>
__device__ __forceinline__ uint32_t drawn_bits(const Keys& keys, uint64_t step, uint32_t site,
                                               int64_t group, const Limit& limit) {
  PhiloxWords words = dropout_counter(step, site, group);
#pragma unroll
  for (int round = 0; round < kDropoutRounds; ++round) {
    words = philox_round(words, keys.low(round), keys.high(round));
  }
  return kept_of_words(words, limit);
}

__device__ __forceinline__ uint32_t drawn_bits(uint64_t seed, uint64_t step, uint32_t site,
                                               int64_t group, uint32_t threshold) {
  return drawn_bits(SeedKeys{seed}, step, site, group, [threshold](int digit) {
    constexpr int kUnused = 32 - kDropoutDigits;  // bits above the threshold
    return static_cast<uint32_t>(static_cast<int32_t>(threshold << (kUnused + digit)) >> 31);
  });
}

}  // namespace bertha
