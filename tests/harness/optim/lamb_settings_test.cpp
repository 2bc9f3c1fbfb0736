#include "harness/optim/lamb_settings.h"

#include <gtest/gtest.h>

namespace bertha {
namespace {

TEST(LambSettings, AStartWithoutWarmUpHasNoEffect) {
  const OptimizerConfig config{.warmup_steps = 0, .start_warmup_step = -5};
  EXPECT_EQ(make_lamb_settings(config, 10).schedule.start_step, 0);
  const OptimizerConfig warm{.warmup_steps = 8, .start_warmup_step = -5};
  EXPECT_EQ(make_lamb_settings(warm, 10).schedule.start_step, -5);
}

TEST(LambSettings, TheLossScaleStartsAtOneUnlessDynamic) {
  EXPECT_EQ(make_lamb_settings({.initial_loss_scale = 64}, 10).initial_loss_scale, 1.0f);
  const LambSettings dynamic =
      make_lamb_settings({.loss_scale = LossScaling::kDynamic, .initial_loss_scale = 64}, 10);
  EXPECT_EQ(dynamic.initial_loss_scale, 64.0f);
  EXPECT_TRUE(dynamic.loss_scale.dynamic);
}

TEST(LambSettings, SpikesAreSkippedOnlyWhereAsked) {
  EXPECT_EQ(make_lamb_settings({}, 10).spikes, SpikeRule::kCount);
  EXPECT_EQ(make_lamb_settings({.gradient_spike = GradientSpike::kSkip}, 10).spikes,
            SpikeRule::kSkip);
  EXPECT_EQ(make_lamb_settings({.gradient_spike = GradientSpike::kRewind}, 10).spikes,
            SpikeRule::kHold);
}

TEST(LambSettings, AMaximumOfZeroSwitchesClippingOff) {
  EXPECT_EQ(make_lamb_settings({.max_gradient_norm = 0, .clip = ClipTime::kBefore}, 1).clip,
            ClipPoint::kOff);
  EXPECT_EQ(make_lamb_settings({.clip = ClipTime::kBefore}, 1).clip, ClipPoint::kBeforeReduction);
}

}  // namespace
}  // namespace bertha
