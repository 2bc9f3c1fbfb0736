#include "kernels/base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bertha {
namespace {

struct E4M3 {
  using Type = Fp8E4M3;
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr uint32_t kLargest = 0x7E;
  static Type narrow(double value) { return to_e4m3(value); }
};

struct E5M2 {
  using Type = Fp8E5M2;
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr uint32_t kLargest = 0x7B;
  static Type narrow(double value) { return to_e5m2(value); }
};

/// The value of bits up to kLargest by the definition of the format.
template <class Format>
double value_of(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> Format::kMantissaBits);
  const double fraction =
      std::ldexp(bits & ((1u << Format::kMantissaBits) - 1), -Format::kMantissaBits);
  if (exponent == 0) return std::ldexp(fraction, 1 - Format::kBias);
  return std::ldexp(1.0 + fraction, exponent - Format::kBias);
}

template <class Format>
class Fp8 : public testing::Test {};

using Formats = testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Fp8, Formats);

TYPED_TEST(Fp8, WidensEveryCodeExactlyAndNarrowsItBack) {
  for (uint32_t bits = 0; bits <= TypeParam::kLargest; ++bits) {
    const typename TypeParam::Type small{static_cast<uint8_t>(bits)};
    const typename TypeParam::Type negative{static_cast<uint8_t>(bits | 0x80)};
    EXPECT_EQ(static_cast<double>(to_float(small)), value_of<TypeParam>(bits)) << bits;
    EXPECT_EQ(to_float(negative), -to_float(small)) << bits;
    EXPECT_TRUE(std::signbit(to_float(negative))) << bits;
    EXPECT_EQ(TypeParam::narrow(static_cast<double>(to_float(small))).bits, bits);
    EXPECT_EQ(TypeParam::narrow(static_cast<double>(to_float(negative))).bits, bits | 0x80);
  }
  EXPECT_EQ(to_float(typename TypeParam::Type{TypeParam::kLargest}), TypeParam::Type::kMax);
}

TYPED_TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < TypeParam::kLargest; ++bits) {
    const double low = value_of<TypeParam>(bits);
    const double high = value_of<TypeParam>(bits + 1);
    const double middle = low + (high - low) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(TypeParam::narrow(middle).bits, even);
    EXPECT_EQ(TypeParam::narrow(std::nextafter(middle, 0.0)).bits, bits);
    EXPECT_EQ(TypeParam::narrow(std::nextafter(middle, high)).bits, bits + 1);
    EXPECT_EQ(TypeParam::narrow(-middle).bits, even | 0x80);
  }
}

TYPED_TEST(Fp8, SaturatesAndKeepsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double largest = static_cast<double>(TypeParam::Type::kMax);
  for (const double large : {largest * 1.01, largest * 2, 1e39, 1e300, infinity}) {
    EXPECT_EQ(TypeParam::narrow(large).bits, TypeParam::kLargest) << large;
    EXPECT_EQ(TypeParam::narrow(-large).bits, TypeParam::kLargest | 0x80) << large;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(TypeParam::narrow(nan).bits, 0x7F);
  EXPECT_EQ(TypeParam::narrow(-nan).bits, 0x7F);
  EXPECT_TRUE(std::isnan(to_float(TypeParam::narrow(nan))));
  EXPECT_EQ(TypeParam::narrow(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam::narrow(-0.0).bits, 0x80);
}

TEST(Fp8Constants, AreThePublishedOnes) {
  EXPECT_EQ(to_float(Fp8E4M3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(Fp8E4M3{0x08}), 0x1p-6f);
  EXPECT_EQ(to_float(Fp8E5M2{0x01}), 0x1p-16f);
  EXPECT_EQ(to_float(Fp8E5M2{0x04}), 0x1p-14f);
  EXPECT_TRUE(std::isinf(to_float(Fp8E5M2{0x7C})));
  EXPECT_TRUE(std::isnan(to_float(Fp8E4M3{0xFF})));
}

}  // namespace
}  // namespace bertha
