#include "data/random/python_random.h"

#include <array>
#include <bit>

#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Gives a std::mt19937 the state of init_by_array with the words of a seed.
class InitByArray {
 public:
  using result_type = uint32_t;
  explicit InitByArray(uint64_t seed)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  void generate(uint32_t* state, const uint32_t* end) const {
    const auto num_words = static_cast<size_t>(end - state);
    const size_t key_words = key_[1] == 0 ? 1 : 2;
    state[0] = 19650218u;
    for (size_t i = 1; i < num_words; ++i) {
      state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + static_cast<uint32_t>(i);
    }
    size_t i = 1;
    const auto step = [&] {
      if (++i == num_words) {
        state[0] = state[num_words - 1];
        i = 1;
      }
    };
    for (size_t round = 0, j = 0; round < num_words; ++round) {
      const uint32_t before = state[i - 1] ^ (state[i - 1] >> 30);
      state[i] = (state[i] ^ (before * 1664525u)) + key_[j] + static_cast<uint32_t>(j);
      step();
      j = (j + 1) % key_words;
    }
    for (size_t round = 0; round < num_words - 1; ++round) {
      const uint32_t before = state[i - 1] ^ (state[i - 1] >> 30);
      state[i] = (state[i] ^ (before * 1566083941u)) - static_cast<uint32_t>(i);
      step();
    }
    state[0] = 0x80000000u;
  }

 private:
  std::array<uint32_t, 2> key_;
};

std::mt19937 engine_of(uint64_t seed) {
  InitByArray words(seed);
  return std::mt19937(words);
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : engine_(engine_of(seed)) {}

int64_t PythonRandom::randbelow(int64_t limit) {
  BERTHA_CHECK(limit >= 1, "limit ", limit, ", want at least 1");
  const int num_bits = std::bit_width(static_cast<uint64_t>(limit));
  uint64_t value = getrandbits(num_bits);
  while (value >= static_cast<uint64_t>(limit)) value = getrandbits(num_bits);
  return static_cast<int64_t>(value);
}

}  // namespace bertha
