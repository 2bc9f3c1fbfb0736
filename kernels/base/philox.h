#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"

namespace bertha {

/// Counter-based random bits: Philox4x32-10, one source for host and device.
///
/// Random    The word of element i at (seed, step, site) is elem[i % 4] of
///           philox4x32_10(counter = {i / 4 low, i / 4 high, site, step low}, key = seed).
///           It depends on nothing else: not on threads, tiles, ranks or backends.
/// Exact     bit for bit the same everywhere; known answers in tests/kernels/philox_test.cpp.
/// Source    Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
struct PhiloxWords {
  uint32_t elem[4];
};

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxFactor0 = 0xD2511F53u;
constexpr uint32_t kPhiloxFactor1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxKeyStepLow = 0x9E3779B9u;
constexpr uint32_t kPhiloxKeyStepHigh = 0xBB67AE85u;

/// Both halves of a product from one multiplication; nvcc adds an instruction to the plain form.
BERTHA_HOST_DEVICE inline uint64_t multiply_wide(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<uint64_t>(a) * b;
#endif
}

/// One round, under the round's own key.
BERTHA_HOST_DEVICE inline PhiloxWords philox_round(PhiloxWords counter, uint32_t key_low,
                                                   uint32_t key_high) {
  const uint64_t product_0 = multiply_wide(kPhiloxFactor0, counter.elem[0]);
  const uint64_t product_1 = multiply_wide(kPhiloxFactor1, counter.elem[2]);
  const uint32_t high_0 = static_cast<uint32_t>(product_0 >> 32);
  const uint32_t high_1 = static_cast<uint32_t>(product_1 >> 32);
  return PhiloxWords{{high_1 ^ counter.elem[1] ^ key_low, static_cast<uint32_t>(product_1),
                      high_0 ^ counter.elem[3] ^ key_high, static_cast<uint32_t>(product_0)}};
}

template <int kRounds>
BERTHA_HOST_DEVICE inline PhiloxWords philox4x32(PhiloxWords counter, uint64_t key) {
  uint32_t key_low = static_cast<uint32_t>(key);
  uint32_t key_high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    counter = philox_round(counter, key_low, key_high);
    key_low += kPhiloxKeyStepLow;
    key_high += kPhiloxKeyStepHigh;
  }
  return counter;
}

BERTHA_HOST_DEVICE inline PhiloxWords philox4x32_10(PhiloxWords counter, uint64_t key) {
  return philox4x32<kPhiloxRounds>(counter, key);
}

/// The four words of elements 4 * block .. 4 * block + 3.
BERTHA_HOST_DEVICE inline PhiloxWords random_block(uint64_t seed, uint64_t step, uint32_t site,
                                                   int64_t block) {
  const uint64_t index = static_cast<uint64_t>(block);
  return philox4x32_10(
      PhiloxWords{{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), site,
                   static_cast<uint32_t>(step)}},
      seed);
}

BERTHA_HOST_DEVICE inline uint32_t random_word(uint64_t seed, uint64_t step, uint32_t site,
                                               int64_t element) {
  return random_block(seed, step, site, element / 4).elem[element % 4];
}

}  // namespace bertha
