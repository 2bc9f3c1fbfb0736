#include "harness/optim/lamb_settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/ops/lamb_rules.h"

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

std::vector<double> rates_of(const OptimizerConfig& config, int64_t steps) {
  std::vector<double> rates;
  const LrSchedule schedule = learning_rate_schedule(config, steps);
  for (int64_t t = 0; t <= steps; ++t) rates.push_back(scheduled_learning_rate(schedule, t));
  return rates;
}

TEST(LearningRateSchedule, EveryFormHasItsRates) {
  OptimizerConfig config{.base_learning_rate = 1, .warmup_steps = 2};
  const auto expect = [&](Schedule form, const std::vector<double>& want) {
    config.schedule = form;
    const std::vector<double> found = rates_of(config, 6);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[i], want[i], 1e-6) << i;
  };
  expect(Schedule::kPolynomial, {0, 0.5, 4.0 / 6, 3.0 / 6, 2.0 / 6, 1.0 / 6, 0});
  expect(Schedule::kLinear, {0, 0.5, 1, 0.75, 0.5, 0.25, 0});
  expect(Schedule::kCosine, {0, 0.5, 1, 0.5 + std::sqrt(0.125), 0.5, 0.5 - std::sqrt(0.125), 0});
  expect(Schedule::kConstant, {0, 0.5, 1, 1, 1, 1, 1});
  config.decay_steps = 2;
  expect(Schedule::kWsd, {0, 0.5, 1, 1, 1, 0.5, 0});
}

}  // namespace
}  // namespace bertha
