#include "data/random/python_random.h"

#include <algorithm>
#include <bit>

#include "kernels/base/error.h"

namespace bertha {

PythonRandom::PythonRandom(uint64_t seed) {
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const size_t key_words = key[1] == 0 ? 1 : 2;

  state_[0] = 19650218u;
  for (size_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  size_t i = 1;
  const auto step = [&] {
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (size_t round = 0, j = 0; round < std::max(kWords, key_words); ++round) {
    const uint32_t before = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (before * 1664525u)) + key[j] + static_cast<uint32_t>(j);
    step();
    j = (j + 1) % key_words;
  }
  for (size_t round = 0; round < kWords - 1; ++round) {
    const uint32_t before = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (before * 1566083941u)) - static_cast<uint32_t>(i);
    step();
  }
  state_[0] = 0x80000000u;
}

int64_t PythonRandom::randbelow(int64_t limit) {
  BERTHA_CHECK(limit >= 1, "limit ", limit, ", want at least 1");
  const int num_bits = std::bit_width(static_cast<uint64_t>(limit));
  uint64_t value = getrandbits(num_bits);
  while (value >= static_cast<uint64_t>(limit)) value = getrandbits(num_bits);
  return static_cast<int64_t>(value);
}

void PythonRandom::refill() {
  constexpr size_t kShift = 397;
  const auto twist = [](uint32_t here, uint32_t next, uint32_t far) {
    const uint32_t mixed = (here & 0x80000000u) | (next & 0x7fffffffu);
    return far ^ (mixed >> 1) ^ ((mixed & 1u) != 0 ? 0x9908b0dfu : 0u);
  };
  size_t i = 0;
  for (; i < kWords - kShift; ++i) {
    state_[i] = twist(state_[i], state_[i + 1], state_[i + kShift]);
  }
  for (; i < kWords - 1; ++i) {
    state_[i] = twist(state_[i], state_[i + 1], state_[i + kShift - kWords]);
  }
  state_[kWords - 1] = twist(state_[kWords - 1], state_[0], state_[kShift - 1]);
  used_ = 0;
}

}  // namespace bertha
