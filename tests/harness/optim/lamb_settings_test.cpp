#include "harness/optim/lamb_settings.h"

#include <gtest/gtest.h>

namespace bertha {
namespace {

TEST(LambSettings, AStartWithoutWarmUpHasNoEffect) {
  const OptimizerConfig config{.warmup_steps = 0, .start_warmup_step = -5};
  EXPECT_EQ(lamb_prepare_rules(config, 10).schedule.start_step, 0);
  const OptimizerConfig warm{.warmup_steps = 8, .start_warmup_step = -5};
  EXPECT_EQ(lamb_prepare_rules(warm, 10).schedule.start_step, -5);
}

TEST(LambSettings, TheLossScaleStartsAtOneUnlessDynamic) {
  EXPECT_EQ(initial_loss_scale({.initial_loss_scale = 64}), 1.0f);
  const OptimizerConfig dynamic{.loss_scale = LossScaling::kDynamic, .initial_loss_scale = 64};
  EXPECT_EQ(initial_loss_scale(dynamic), 64.0f);
  EXPECT_TRUE(lamb_prepare_rules(dynamic, 10).loss_scale.dynamic);
}

TEST(LambSettings, SpikesAreSkippedOnlyWhereAsked) {
  EXPECT_EQ(lamb_prepare_rules({}, 10).spikes, SpikeRule::kWarn);
  EXPECT_EQ(lamb_prepare_rules({.gradient_spike = SpikeRule::kSkip}, 10).spikes, SpikeRule::kSkip);
}

TEST(LambSettings, TheSumIsClippedUnlessItsPartsWere) {
  const OptimizerConfig before{.max_gradient_norm = 2, .clip = ClipTime::kBefore};
  EXPECT_TRUE(clips_before_reduction(before));
  EXPECT_EQ(lamb_prepare_rules(before, 1).max_gradient_norm, 0);
  EXPECT_FALSE(clips_before_reduction({.max_gradient_norm = 2}));
  EXPECT_EQ(lamb_prepare_rules({.max_gradient_norm = 2}, 1).max_gradient_norm, 2);
}

TEST(LambSettings, AMaximumOfZeroSwitchesClippingOff) {
  EXPECT_FALSE(clips_before_reduction({.max_gradient_norm = 0, .clip = ClipTime::kBefore}));
}

}  // namespace
}  // namespace bertha
