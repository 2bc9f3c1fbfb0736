#pragma once

#include "kernels/base/dropout_bits.h"
#include "kernels/ops/common.h"

namespace bertha {

/// One operation's dropout as a kernel takes it: by value, with {seed, step} still in device
/// memory.
struct DeviceDropout {
  const uint64_t* random = nullptr;  // {seed, step}; null at probability 0
  uint32_t site = 0;
  uint32_t threshold = 0;
  float keep_factor = 1.0f;  // of kept elements: 1 / (1 - p)

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

/// kept_bits of kernels/base/dropout_bits.h, bit for bit, for a thread of a full warp.
///
/// Twelve digits are drawn without asking: after eight some lane of a warp is still undecided
/// nearly always, after twelve once in five times. From the lowest digit up, "below the threshold"
/// is the majority of (digit is 0, threshold's digit is 1, below it in the digits underneath): one
/// instruction per digit.
__device__ __forceinline__ uint32_t drawn_bits(uint64_t seed, uint64_t step, uint32_t site,
                                               int64_t group, uint32_t threshold) {
  constexpr int kBlocksAtOnce = 3;
  PhiloxWords digits[kBlocksAtOnce];
#pragma unroll
  for (int block = 0; block < kBlocksAtOnce; ++block) {
    digits[block] = dropout_digits(seed, step, site, group, block);
  }
  uint32_t below = 0;
  uint32_t equal = ~0u;
#pragma unroll
  for (int digit = 4 * kBlocksAtOnce - 1; digit >= 0; --digit) {
    const uint32_t drawn = digits[digit / 4].lane[digit % 4];
    const uint32_t wanted = static_cast<uint32_t>(static_cast<int32_t>(threshold << digit) >> 31);
    below = logic_of_three<0x8E>(drawn, wanted, below);  // wanted ? ~drawn | below : ~drawn & below
    equal = logic_of_three<0x82>(drawn, wanted, equal);  // equal & ~(drawn ^ wanted)
  }
  DropoutDecision decision{.dropped = below, .undecided = equal};
  for (int block = kBlocksAtOnce; block < 8 && decision.undecided != 0; ++block) {
    compare_digits(decision, dropout_digits(seed, step, site, group, block), block, threshold);
  }
  return ~decision.dropped;
}

}  // namespace bertha
