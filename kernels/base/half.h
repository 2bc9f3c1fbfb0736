#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace bertha {

/// The 16-bit storage formats on the host: bits only, arithmetic happens in f32 or f64.
///
/// Exact     widening is exact; narrowing rounds once, to nearest even, with gradual underflow;
///           overflow gives infinity; a NaN becomes a quiet NaN of the same sign.
struct Half {
  uint16_t bits = 0;  // IEEE 754 binary16: 1 sign, 5 exponent, 10 mantissa bits
};
struct BFloat16 {
  uint16_t bits = 0;  // upper half of a binary32: 1 sign, 8 exponent, 7 mantissa bits
};

template <>
inline constexpr DType kDTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBF16;

namespace small_float {

/// The bits, without the sign, of a finite value rounded to a format with the given mantissa bits;
/// they continue beyond the format's largest number as if its exponent were unlimited.
template <int kMantissaBits, int kBias>
constexpr uint64_t rounded_magnitude(double value) {
  constexpr uint64_t kHidden = uint64_t{1} << 52;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1023;
  // Below the smallest normal number the unit stays as at the smallest exponent.
  const int lost_exponents = exponent < 1 - kBias ? 1 - kBias - exponent : 0;
  const int shift = 52 - kMantissaBits + lost_exponents;
  if (shift > 53) return 0;  // below half of the smallest subnormal
  const uint64_t full = kHidden | (bits & (kHidden - 1));
  const uint64_t kept = full >> shift;
  const uint64_t rest = full & ((uint64_t{1} << shift) - 1);
  const uint64_t half_unit = uint64_t{1} << (shift - 1);
  const bool up = rest > half_unit || (rest == half_unit && (kept & 1) != 0);
  // A normal number's hidden bit is added onto the exponent below it; carries do the rest.
  const uint64_t exponent_below =
      lost_exponents > 0 ? 0 : static_cast<uint64_t>(exponent + kBias - 1) << kMantissaBits;
  return exponent_below + kept + (up ? 1 : 0);
}

/// Rounds a double to a 16-bit format with the given mantissa bits; the rest is exponent and sign.
template <int kMantissaBits>
constexpr uint16_t narrow(double value) {
  constexpr int kExponentBits = 15 - kMantissaBits;
  constexpr uint64_t kInfinity = ((uint64_t{1} << kExponentBits) - 1) << kMantissaBits;
  const uint64_t sign = (std::bit_cast<uint64_t>(value) >> 63) << 15;
  if (value != value) {
    return static_cast<uint16_t>(sign | kInfinity | (uint64_t{1} << (kMantissaBits - 1)));
  }
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  return static_cast<uint16_t>(sign |
                               std::min(rounded_magnitude<kMantissaBits, kBias>(value), kInfinity));
}

}  // namespace small_float

constexpr Half to_half(double value) { return Half{small_float::narrow<10>(value)}; }

constexpr BFloat16 to_bfloat16(double value) { return BFloat16{small_float::narrow<7>(value)}; }

constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

constexpr float to_float(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1F;
  const uint32_t mantissa = value.bits & 0x3FF;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFF : exponent + 127 - 15;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

}  // namespace bertha
