#pragma once

#include <cstdint>

namespace bertha {

/// A number to divide by, known when a kernel is launched: a product and a shift instead of the
/// some twenty instructions of a division.
class Divisor {
 public:
  /// `by` is in [1, 2^31].
  explicit Divisor(int64_t by) : value_(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift_) < value_) ++shift_;
    // 2^32 (2^shift / by - 1), rounded up: exact for dividends below 2^31.
    const uint64_t beyond = (uint64_t{1} << shift_) - value_;
    multiplier_ = static_cast<uint32_t>((beyond << 32) / value_ + 1);
  }

  /// Of a dividend below 2^31.
  __device__ __forceinline__ uint32_t quotient(uint32_t dividend) const {
    return (__umulhi(dividend, multiplier_) + dividend) >> shift_;
  }
  __device__ __forceinline__ uint32_t remainder(uint32_t dividend) const {
    return dividend - quotient(dividend) * value_;
  }

 private:
  uint32_t value_;
  uint32_t multiplier_ = 0;
  uint32_t shift_ = 0;
};

}  // namespace bertha
