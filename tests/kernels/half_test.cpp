#include "kernels/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/fp8.h"

namespace bertha {
namespace {

/// A format by its definition, and the function that rounds to it.
template <class T, int kMantissa, int kExponentBias, T (*kNarrow)(double)>
struct Format {
  using Type = T;
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kBias = kExponentBias;
  static Type narrow(double value) { return kNarrow(value); }
};
using HalfFormat = Format<Half, 10, 15, to_half>;
using BFloat16Format = Format<BFloat16, 7, 127, to_bfloat16>;
struct E4M3Format : Format<Fp8E4M3, 3, 7, to_e4m3> {
  static constexpr uint32_t kLargest = 0x7E;
};
struct E5M2Format : Format<Fp8E5M2, 2, 15, to_e5m2> {
  static constexpr uint32_t kLargest = 0x7B;
};

/// The value of non-negative bits by the definition of the format.
template <class F>
double value_of(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> F::kMantissaBits);
  const double fraction = std::ldexp(bits & ((1u << F::kMantissaBits) - 1), -F::kMantissaBits);
  if (exponent == 0) return std::ldexp(fraction, 1 - F::kBias);
  return std::ldexp(1.0 + fraction, exponent - F::kBias);
}

template <class F>
constexpr uint32_t infinity_bits() {
  return (2u * F::kBias + 1u) << F::kMantissaBits;
}

/// Halfway between each pair of neighbours up to the magnitude `end`, and right beside it. An
/// infinity counts as the value 2^emax * 2.
template <class F>
void expect_nearest_and_ties_to_even(uint32_t end, uint32_t sign) {
  for (uint32_t bits = 0; bits < end; ++bits) {
    const double low = value_of<F>(bits);
    const double high = value_of<F>(bits + 1);
    const double middle = low + (high - low) / 2;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(F::narrow(middle).bits, even);
    EXPECT_EQ(F::narrow(std::nextafter(middle, 0.0)).bits, bits);
    EXPECT_EQ(F::narrow(std::nextafter(middle, high)).bits, bits + 1);
    EXPECT_EQ(F::narrow(-middle).bits, even | sign);
  }
}

template <class F>
class SmallFloat : public testing::Test {};

using Formats = testing::Types<HalfFormat, BFloat16Format>;
TYPED_TEST_SUITE(SmallFloat, Formats);

TYPED_TEST(SmallFloat, WidensEveryValueExactlyAndNarrowsItBack) {
  using Type = typename TypeParam::Type;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Type small{static_cast<uint16_t>(bits)};
    const float wide = to_float(small);
    const uint32_t magnitude = bits & 0x7FFF;
    EXPECT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    if (magnitude > infinity_bits<TypeParam>()) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(to_float(TypeParam::narrow(static_cast<double>(wide))))) << bits;
      continue;
    }
    if (magnitude == infinity_bits<TypeParam>()) {
      EXPECT_TRUE(std::isinf(wide)) << bits;
    } else {
      EXPECT_EQ(std::abs(static_cast<double>(wide)), value_of<TypeParam>(magnitude)) << bits;
    }
    EXPECT_EQ(TypeParam::narrow(static_cast<double>(wide)).bits, bits);
  }
}

TYPED_TEST(SmallFloat, RoundsToTheNearestAndTiesToEven) {
  expect_nearest_and_ties_to_even<TypeParam>(infinity_bits<TypeParam>(), 0x8000);
}

TYPED_TEST(SmallFloat, OverflowsToInfinityAndKeepsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double large : {1e39, 1e300, infinity}) {
    EXPECT_EQ(TypeParam::narrow(large).bits, infinity_bits<TypeParam>());
    EXPECT_EQ(TypeParam::narrow(-large).bits, infinity_bits<TypeParam>() | 0x8000);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(to_float(TypeParam::narrow(nan))));
  EXPECT_EQ(TypeParam::narrow(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam::narrow(-0.0).bits, 0x8000);
}

TEST(SmallFloatConstants, AreTheWellKnownOnes) {
  EXPECT_EQ(to_half(1.0).bits, 0x3C00);
  EXPECT_EQ(to_half(65504.0).bits, 0x7BFF);
  EXPECT_EQ(to_half(0x1p-24).bits, 0x0001);
  EXPECT_EQ(to_bfloat16(1.0).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(3.140625).bits, 0x4049);
}

template <class F>
class Fp8 : public testing::Test {};

using Fp8Formats = testing::Types<E4M3Format, E5M2Format>;
TYPED_TEST_SUITE(Fp8, Fp8Formats);

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
  expect_nearest_and_ties_to_even<TypeParam>(TypeParam::kLargest, 0x80);
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
