#include "kernels/ops/elementwise.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/base/half.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/ops/lamb.h"

namespace bertha {
namespace {

void cast(const View& from, const View& to) { run_on_cpu(Cast{.from = from, .to = to}, 2); }

void fill(const View& values, double value) {
  run_on_cpu(Fill{.values = values, .value = value}, 2);
}

constexpr int64_t kCounts[] = {0, 1, 7, 33, 511, 40000};

TEST(Cast, RoundsOnceBetweenEveryPairOfDtypes) {
  for (const int64_t count : kCounts) {
    HostTensor<double> wide({count});
    for (int64_t i = 0; i < count; ++i) wide[i] = std::sin(static_cast<double>(i) + 0.5) * 300.0;
    HostTensor<float> single({count});
    HostTensor<Half> half({count});
    HostTensor<BFloat16> bfloat({count});
    cast(wide.view(), single.view());
    cast(wide.view(), half.view());
    cast(single.view(), bfloat.view());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(single[i], static_cast<float>(wide[i]));
      ASSERT_EQ(half[i].bits, to_half(wide[i]).bits);
      ASSERT_EQ(bfloat[i].bits, to_bfloat16(static_cast<double>(single[i])).bits);
    }
    HostTensor<float> back({count});
    HostTensor<double> back_wide({count});
    cast(half.view(), back.view());
    cast(bfloat.view(), back_wide.view());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(back[i], to_float(half[i]));
      ASSERT_EQ(back_wide[i], static_cast<double>(to_float(bfloat[i])));
    }
  }
}

TEST(Cast, DoesNotRoundTwiceFromDoubleToHalf) {
  // Just above a tie of f16; rounding to f32 first would land on the tie and go to even.
  HostTensor<double> from({1}, 1.0 + 0x1p-11 + 0x1p-40);
  HostTensor<Half> to({1});
  cast(from.view(), to.view());
  EXPECT_EQ(to_float(to[0]), 1.0f + 0x1p-10f);
}

TEST(Fill, WritesEveryElementOfEveryDtype) {
  for (const int64_t count : kCounts) {
    HostTensor<double> f64({count});
    HostTensor<float> f32({count});
    HostTensor<Half> f16({count});
    HostTensor<BFloat16> bf16({count});
    HostTensor<int64_t> i64({count});
    HostTensor<int32_t> i32({count});
    for (const View& view :
         {f64.view(), f32.view(), f16.view(), bf16.view(), i64.view(), i32.view()}) {
      fill(view, -3.0);
    }
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(f64[i], -3.0);
      ASSERT_EQ(f32[i], -3.0f);
      ASSERT_EQ(to_float(f16[i]), -3.0f);
      ASSERT_EQ(to_float(bf16[i]), -3.0f);
      ASSERT_EQ(i64[i], -3);
      ASSERT_EQ(i32[i], -3);
    }
  }
}

float gradient_scale(int64_t denominator, double numerator, const LambState* state) {
  HostTensor<int64_t> count({1}, denominator);
  HostTensor<float> target = garbage_tensor({1});
  LambState copy = state != nullptr ? *state : LambState{};
  const View state_view =
      state != nullptr ? View(&copy, DType::kU8, {int64_t{sizeof(LambState)}}) : View();
  run_on_cpu(GradientScale{.denominator = count.view(),
                           .state = state_view,
                           .target = target.view(),
                           .numerator = numerator});
  return target[0];
}

TEST(GradientScale, DividesByTheCountAndMultipliesByTheLossScale) {
  EXPECT_EQ(gradient_scale(8, 3.0, nullptr), 0.375f);
  LambState state;
  state.loss_scale = 1024.0f;
  EXPECT_EQ(gradient_scale(8, 3.0, &state), 384.0f);
}

TEST(GradientScale, GivesTheScaleThatMakesItTheSamePowerOfTwo) {
  HostTensor<int64_t> count({1}, 3712);
  HostTensor<float> target = garbage_tensor({1});
  HostTensor<float> scale = garbage_tensor({1});
  HostTensor<float> inverse = garbage_tensor({1});
  run_on_cpu(GradientScale{.denominator = count.view(),
                           .state = View(),
                           .target = target.view(),
                           .fp8_scale = scale.view(),
                           .fp8_inverse_scale = inverse.view()});
  EXPECT_EQ(target[0], 1.0f / 3712);
  EXPECT_NEAR(static_cast<double>(scale[0] * target[0]), 32768,
              32768.0 / 512);  // half a unit of bf16
  EXPECT_EQ(std::bit_cast<uint32_t>(scale[0]) & 0xFFFF, 0u);
  EXPECT_EQ(inverse[0], 1.0f / scale[0]);
}

// An empty micro-batch under train.loss_mean: local brings its own count, 0.
TEST(GradientScale, TreatsACountOfZeroAsOne) {
  EXPECT_EQ(gradient_scale(0, 0.5, nullptr), 0.5f);
  LambState state;
  state.loss_scale = 1024.0f;
  EXPECT_EQ(gradient_scale(0, 0.25, &state), 256.0f);
}

}  // namespace
}  // namespace bertha
