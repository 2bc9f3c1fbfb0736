#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/philox.h"

namespace bertha {

/// An independent seed of each number: the finalizer of SplitMix64, a bijection for a given seed.
inline uint64_t mixed_seed(uint64_t seed, uint64_t number) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ull * (number + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// Random numbers one after the other: a pure function of (seed, stream, site).
class Draws {
 public:
  Draws(uint64_t seed, int64_t stream, uint32_t site = 0)
      : seed_(seed), stream_(static_cast<uint64_t>(stream)), site_(site) {}

  uint32_t word() {
    if (next_ % 4 == 0) block_ = random_block(seed_, stream_, site_, next_ / 4);
    return block_.elem[next_++ % 4];
  }
  /// Evenly from [0, 1).
  double share() { return word() / 4294967296.0; }
  /// Evenly from [0, bound).
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(uint64_t{word()} * static_cast<uint64_t>(bound) >> 32);
  }

 private:
  uint64_t seed_;
  uint64_t stream_;  // the low 32 bits count
  uint32_t site_;
  int64_t next_ = 0;
  PhiloxWords block_{};  // the block with the word before next_
};

/// Shuffles in place: Fisher-Yates from the last element down, element i changes place with
/// element (64-bit word) mod (i + 1). Word 2b and 2b + 1 are elements {0, 1} and {2, 3} (low,
/// high) of Philox block b at (key, step, site).
///
/// Random    a pure function of key, step and site, equal with every compiler and library, which
///           std::shuffle does not promise. The modulo favours small values by i / 2^64.
template <class T>
void philox_shuffle(std::vector<T>& items, uint64_t key, uint64_t step, uint32_t site) {
  Draws draws(key, static_cast<int64_t>(step), site);
  for (size_t i = items.size(); i-- > 1;) {
    const uint64_t low = draws.word();
    const uint64_t word = low | uint64_t{draws.word()} << 32;
    std::swap(items[i], items[static_cast<size_t>(word % (i + 1))]);
  }
}

}  // namespace bertha
