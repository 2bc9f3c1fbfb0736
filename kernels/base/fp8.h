#pragma once

#include <cstring>

#include "kernels/base/half.h"

namespace bertha {

/// The 8-bit storage formats on the host (Micikevicius et al. 2022, "FP8 formats for deep
/// learning"): bits only, arithmetic happens in f32 or f64.
///
/// Exact     widening is exact; narrowing rounds once, to nearest even, with gradual underflow, and
///           saturates: larger values and infinities give the largest finite number of their
///           sign; any NaN gives 0x7F. The same as cvt.rn.satfinite of PTX.
struct Fp8E4M3 {
  uint8_t bits = 0;  // 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities; 0x7F, 0xFF: NaN
  static constexpr float kMax = 448.0f;  // 1.75 * 2^8
};
struct Fp8E5M2 {
  uint8_t bits = 0;  // 1 sign, 5 exponent (bias 15), 2 mantissa bits; otherwise as binary16
  static constexpr float kMax = 57344.0f;  // 1.75 * 2^15
};

template <>
inline constexpr DType kDTypeOf<Fp8E4M3> = DType::kE4M3;
template <>
inline constexpr DType kDTypeOf<Fp8E5M2> = DType::kE5M2;

namespace small_float {

template <int kMantissaBits, int kBias, uint64_t kLargest>
constexpr uint8_t narrow_saturated(double value) {
  if (value != value) return 0x7F;
  const uint64_t sign = (std::bit_cast<uint64_t>(value) >> 63) << 7;
  return static_cast<uint8_t>(sign |
                              std::min(rounded_magnitude<kMantissaBits, kBias>(value), kLargest));
}

}  // namespace small_float

constexpr Fp8E4M3 to_e4m3(double value) {
  return {small_float::narrow_saturated<3, 7, 0x7E>(value)};
}
constexpr Fp8E5M2 to_e5m2(double value) {
  return {small_float::narrow_saturated<2, 15, 0x7B>(value)};
}

/// e5m2 is the upper half of a binary16.
constexpr float to_float(Fp8E5M2 value) {
  return to_float(Half{static_cast<uint16_t>(value.bits << 8)});
}

constexpr float to_float(Fp8E4M3 value) {
  const uint32_t magnitude = value.bits & 0x7Fu;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  // Placed in a binary16, its bits mean the value times 2^-8, subnormals too.
  const Half scaled{static_cast<uint16_t>((value.bits & 0x80u) << 8 | magnitude << 7)};
  return to_float(scaled) * 256.0f;
}

/// data[index], of any dtype.
inline double get_element(const void* data, DType dtype, int64_t index) {
  const auto at = [&]<class T>(T value) {
    std::memcpy(&value, static_cast<const char*>(data) + index * int64_t{sizeof(T)}, sizeof(T));
    return value;
  };
  if (dtype == DType::kF64) return at(double{});
  if (dtype == DType::kF32) return static_cast<double>(at(float{}));
  if (dtype == DType::kF16) return static_cast<double>(to_float(at(Half{})));
  if (dtype == DType::kBF16) return static_cast<double>(to_float(at(BFloat16{})));
  if (dtype == DType::kE4M3) return static_cast<double>(to_float(at(Fp8E4M3{})));
  if (dtype == DType::kE5M2) return static_cast<double>(to_float(at(Fp8E5M2{})));
  if (dtype == DType::kI64) return static_cast<double>(at(int64_t{}));
  if (dtype == DType::kU64) return static_cast<double>(at(uint64_t{}));
  return dtype == DType::kI32 ? at(int32_t{}) : at(uint8_t{});
}

/// data[index] = number, in a floating-point format, rounded to nearest even.
inline void set_element(void* data, DType dtype, int64_t index, double number) {
  const auto store = [&](auto value) {
    std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(value)), &value,
                sizeof(value));
  };
  if (dtype == DType::kF64) return store(number);
  if (dtype == DType::kF32) return store(static_cast<float>(number));
  if (dtype == DType::kF16) return store(to_half(number));
  if (dtype == DType::kBF16) return store(to_bfloat16(number));
  if (dtype == DType::kE4M3) return store(to_e4m3(number));
  BERTHA_CHECK(dtype == DType::kE5M2, name(dtype), " is not an fp8 format");
  store(to_e5m2(number));
}

}  // namespace bertha
