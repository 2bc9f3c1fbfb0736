#include "harness/optim/lamb_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/base/error.h"
#include "tests/support/error_of.h"

namespace bertha {
namespace {

using ::testing::HasSubstr;

std::string refusal(const OptimizerConfig& config, int64_t schedule_steps = 10) {
  return error_of([&] { make_lamb_settings(config, schedule_steps); }, ExitCode::kUsage);
}

TEST(LambSettings, EachBadValueIsAUsageErrorThatNamesItsKey) {
  EXPECT_EQ(refusal(OptimizerConfig{}), "no error");
  EXPECT_THAT(refusal({.clip = "sometimes"}), HasSubstr("optimizer.clip is \"sometimes\""));
  EXPECT_THAT(refusal({.loss_scale = "on"}), HasSubstr("optimizer.loss_scale is \"on\""));
  EXPECT_THAT(refusal({.base_learning_rate = -1}), HasSubstr("base_learning_rate is -1"));
  EXPECT_THAT(refusal({.warmup_steps = -1}), HasSubstr("warmup_steps is -1"));
  EXPECT_THAT(refusal({.decay_degree = 0}), HasSubstr("decay_degree is 0"));
  EXPECT_THAT(refusal({.beta_1 = 1}), HasSubstr("beta_1 is 1"));
  EXPECT_THAT(refusal({.beta_2 = -0.5}), HasSubstr("beta_2 is -0.5"));
  EXPECT_THAT(refusal({.epsilon = 0}), HasSubstr("epsilon is 0"));
  EXPECT_THAT(refusal({.weight_decay = -2}), HasSubstr("weight_decay is -2"));
  EXPECT_THAT(refusal({.max_gradient_norm = -2}), HasSubstr("max_gradient_norm is -2"));
  EXPECT_THAT(refusal({.initial_loss_scale = 0}), HasSubstr("initial_loss_scale is 0"));
  EXPECT_THAT(refusal({.loss_scale_growth_interval_steps = 0}), HasSubstr("growth_interval_steps"));
  EXPECT_THAT(refusal({}, 0), HasSubstr("schedule_steps is 0"));
  EXPECT_THAT(refusal({.weight_decay = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("weight_decay is nan"));
}

TEST(LambSettings, AStartWithoutWarmUpHasNoEffect) {
  const OptimizerConfig config{.warmup_steps = 0, .start_warmup_step = -5};
  EXPECT_EQ(make_lamb_settings(config, 10).schedule.start_step, 0);
  const OptimizerConfig warm{.warmup_steps = 8, .start_warmup_step = -5};
  EXPECT_EQ(make_lamb_settings(warm, 10).schedule.start_step, -5);
}

TEST(LambSettings, TheLossScaleStartsAtOneUnlessDynamic) {
  EXPECT_EQ(make_lamb_settings({.initial_loss_scale = 64}, 10).initial_loss_scale, 1.0f);
  const LambSettings dynamic =
      make_lamb_settings({.loss_scale = "dynamic", .initial_loss_scale = 64}, 10);
  EXPECT_EQ(dynamic.initial_loss_scale, 64.0f);
  EXPECT_TRUE(dynamic.loss_scale.dynamic);
}

TEST(LambSettings, SpikesAreSkippedOnlyWhereAsked) {
  EXPECT_EQ(make_lamb_settings({}, 10).spikes, SpikeRule::kCount);
  EXPECT_EQ(make_lamb_settings({.gradient_spike = "skip"}, 10).spikes, SpikeRule::kSkip);
  EXPECT_EQ(make_lamb_settings({.gradient_spike = "rewind"}, 10).spikes, SpikeRule::kHold);
  EXPECT_THAT(refusal({.gradient_spike = "stop"}), HasSubstr("want warn, skip or rewind"));
}

TEST(LambSettings, AMaximumOfZeroSwitchesClippingOff) {
  EXPECT_EQ(make_lamb_settings({.max_gradient_norm = 0, .clip = "before"}, 1).clip,
            ClipPoint::kOff);
  EXPECT_EQ(make_lamb_settings({.clip = "before"}, 1).clip, ClipPoint::kBeforeReduction);
}

}  // namespace
}  // namespace bertha
