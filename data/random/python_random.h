#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace bertha {

/// CPython's random.Random, draw for draw, as far as the published generator calls it.
///
/// Random    The state is a function of the seed: MT19937 seeded by init_by_array with the 32-bit
///           words of the seed, lowest first.
/// Exact     The same values as CPython 3.6 to 3.13: tests/data/prepare/python_random_test.cpp
///           holds what one release of each printed (tests/golden/README.md).
/// Threads   one object per thread.
/// Source    Matsumoto, Nishimura: Mersenne Twister (1998); CPython Lib/random.py, method docs.
class PythonRandom {
 public:
  /// random.Random(seed) for 0 <= seed < 2^64.
  explicit PythonRandom(uint64_t seed);

  /// random(): 53 bits in [0, 1).
  double random() {
    const uint32_t high = next_word() >> 5;
    const uint32_t low = next_word() >> 6;
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
  }

  /// getrandbits(num_bits), 1 <= num_bits <= 64.
  uint64_t getrandbits(int num_bits) {
    if (num_bits <= 32) return next_word() >> (32 - num_bits);
    const uint64_t low = next_word();
    return low | (static_cast<uint64_t>(next_word() >> (64 - num_bits)) << 32);
  }

  /// _randbelow_with_getrandbits(limit), limit >= 1: also a limit of 1 draws.
  int64_t randbelow(int64_t limit);

  /// randint(low, high), both ends included; low <= high.
  int64_t randint(int64_t low, int64_t high) { return low + randbelow(high - low + 1); }

  /// shuffle(values).
  template <class T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i > 1; --i) {
      const auto other = static_cast<size_t>(randbelow(static_cast<int64_t>(i)));
      std::swap(values[i - 1], values[other]);
    }
  }

 private:
  static constexpr size_t kWords = 624;

  uint32_t next_word() {
    if (used_ == kWords) refill();
    uint32_t word = state_[used_++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
  }
  void refill();

  std::array<uint32_t, kWords> state_{};
  size_t used_ = kWords;
};

}  // namespace bertha
