#include "kernels/ops/lamb_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bertha {
namespace {

/// Rates of updates 1, 2, ... `count`.
std::vector<double> rates(const LrSchedule& schedule, int64_t count) {
  std::vector<double> values;
  for (int64_t t = 0; t < count; ++t) values.push_back(scheduled_learning_rate(schedule, t));
  return values;
}

void expect_rates(const std::vector<double>& found, const std::vector<double>& want) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(found[i], want[i], 1e-6) << "update " << i + 1;  // the 1e-6 beside the warm-up
  }
}

const LambPrepareRules kDynamic{.schedule = {.base = 1.0, .total_steps = 100},
                                .loss_scale = {.dynamic = true, .growth_interval_steps = 3}};
constexpr double kBad = std::numeric_limits<double>::infinity();

TEST(LrSchedule, WithoutWarmUpTheFirstUpdateUsesTheBaseRate) {
  expect_rates(rates({.base = 2, .total_steps = 4}, 6), {2, 1.5, 1, 0.5, 0, 0});
}

TEST(LrSchedule, WarmUpRisesFromZeroAndDecayIsNotShiftedByIt) {
  expect_rates(rates({.base = 1, .warmup_steps = 4, .total_steps = 10}, 7),
               {0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4});
}

TEST(LrSchedule, ANegativeStartIsMidWarmUpAndRunsOneUpdateAhead) {
  expect_rates(rates({.base = 1, .warmup_steps = 4, .start_step = -2, .total_steps = 10}, 3),
               {0.75, 0.8, 0.7});
  expect_rates(rates({.base = 1, .warmup_steps = 4, .start_step = -3, .total_steps = 10}, 2),
               {0.9, 0.8});
}

TEST(LrSchedule, APositiveStartWaitsAtZero) {
  expect_rates(rates({.base = 1, .warmup_steps = 2, .start_step = 3, .total_steps = 10}, 6),
               {0, 0, 0, 0.5, 0.5, 0.4});
}

TEST(LrSchedule, ThePublishedEightNodeScheduleDropsAfter330Updates) {
  const LrSchedule schedule{
      .base = 1, .warmup_steps = 200330, .start_step = -200000, .total_steps = 700};
  // Update 329 has k = 329; update 330 has k = 330 and is the first that decays.
  EXPECT_NEAR(scheduled_learning_rate(schedule, 328), 200329.0 / 200330.0, 1e-9);
  EXPECT_NEAR(scheduled_learning_rate(schedule, 329), 1 - 330.0 / 700.0, 1e-9);
}

TEST(LrSchedule, DegreeIsThePowerOfTheDecay) {
  expect_rates(rates({.base = 1, .total_steps = 4, .degree = 2}, 5), {1, 0.5625, 0.25, 0.0625, 0});
  expect_rates(rates({.base = 1, .total_steps = 4, .degree = 0.5}, 1 + 1), {1, 0.8660254});
}

TEST(LrSchedule, CosineFallsFromTheEndOfTheWarmUp) {
  constexpr auto kCosine = LrSchedule::Decay::kCosine;
  expect_rates(rates({.base = 2, .total_steps = 4, .decay = kCosine}, 6),
               {2, 1 + std::sqrt(0.5), 1, 1 - std::sqrt(0.5), 0, 0});
  expect_rates(rates({.base = 2, .warmup_steps = 2, .total_steps = 6, .decay = kCosine}, 7),
               {0, 1, 2, 1 + std::sqrt(0.5), 1, 1 - std::sqrt(0.5), 0});
}

TEST(LrSchedule, ATailFallsLinearlyAtTheEndAlone) {
  constexpr auto kTail = LrSchedule::Decay::kTail;
  expect_rates(rates({.base = 1, .total_steps = 6, .decay = kTail, .tail_steps = 2}, 7),
               {1, 1, 1, 1, 1, 0.5, 0});
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  expect_rates(rates({.base = 1, .warmup_steps = 2, .total_steps = kEndless, .decay = kTail}, 4),
               {0, 0.5, 1, 1});
}

TEST(LrSchedule, TheFloorIsWhereEveryDecayEnds) {
  for (const auto decay : {LrSchedule::Decay::kPolynomial, LrSchedule::Decay::kCosine}) {
    expect_rates(rates({.base = 2, .total_steps = 2, .decay = decay, .floor = 0.1}, 4),
                 {2, 1.1, 0.2, 0.2});
  }
}

TEST(LossScale, HalvesAtEverySkipDownToTheMinimum) {
  LambState state{.loss_scale = 8.0f};
  LambPrepareRules rules = kDynamic;
  rules.loss_scale.minimum = 2.0f;
  for (const float want : {4.0f, 2.0f, 2.0f}) {
    prepare_update(state, kBad, rules);
    EXPECT_EQ(state.loss_scale, want);
  }
  EXPECT_EQ(state.skipped_steps, 3);
  EXPECT_EQ(state.skips_in_a_row, 3);
  EXPECT_EQ(state.successful_steps, 0);
  EXPECT_EQ(state.skip, 1);
}

TEST(LossScale, DoublesAfterTheIntervalAndASkipRestartsTheInterval) {
  LambState state{.loss_scale = 8.0f};
  const double sums[] = {1, 1, kBad, 1, 1, 1, 1};
  const float want[] = {8, 8, 4, 4, 4, 8, 8};
  for (int i = 0; i < 7; ++i) {
    prepare_update(state, sums[i], kDynamic);
    EXPECT_EQ(state.loss_scale, want[i]) << i;
  }
  EXPECT_EQ(state.successful_steps, 6);
  EXPECT_EQ(state.skipped_steps, 1);
  EXPECT_EQ(state.skips_in_a_row, 0);
  EXPECT_EQ(state.skip, 0);
}

TEST(Skips, TheLongestRowIsKnownAfterItHasEnded) {
  LambState state;
  const double sums[] = {1, kBad, kBad, kBad, 1, kBad, kBad, 1, kBad, kBad, kBad, kBad, 1};
  const int64_t in_a_row[] = {0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4, 0};
  const int64_t most[] = {0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4};
  for (int i = 0; i < 13; ++i) {
    prepare_update(state, sums[i], kDynamic);
    EXPECT_EQ(state.skips_in_a_row, in_a_row[i]) << i;
    EXPECT_EQ(state.most_skips_in_a_row, most[i]) << i;
  }
  EXPECT_EQ(state.skipped_steps, 9);
}

TEST(Skips, ARowThatAResumedRunGoesOnWithCountsFromItsBegin) {
  LambState state{.skips_in_a_row = 3};  // as a checkpoint gives it
  LambState recovered = state;
  prepare_update(state, kBad, kDynamic);
  EXPECT_EQ(state.most_skips_in_a_row, 4);
  prepare_update(recovered, 1.0, kDynamic);
  EXPECT_EQ(recovered.most_skips_in_a_row, 0);
}

/// A state that has seen norms of about 2, ready to find spikes.
LambState used_to_norms_of_2() {
  LambState state;
  for (int i = 0; i < 100; ++i) {
    const double norm = i % 2 == 0 ? 1.8 : 2.2;
    prepare_update(state, norm * norm, {.schedule = {.base = 1, .total_steps = 1000}});
  }
  return state;
}

LambPrepareRules skipping() {
  return {.schedule = {.base = 1, .total_steps = 1000}, .spikes = SpikeRule::kSkip};
}

TEST(Spikes, ANormOfManyTimesTheUsualIsOneAndIsCounted) {
  LambState state = used_to_norms_of_2();
  EXPECT_EQ(state.spikes, 0);
  prepare_update(state, 9.0 * 9.0, {.schedule = {.base = 1}});  // 4.5 times
  EXPECT_EQ(state.spikes, 0);
  prepare_update(state, 20.0 * 20.0, {.schedule = {.base = 1}});
  EXPECT_EQ(state.spikes, 1);
  EXPECT_EQ(state.last_spike_step, 102);
  EXPECT_FLOAT_EQ(state.last_spike_norm, 20.0f);
  EXPECT_NEAR(state.last_spike_usual, 2.0, 0.2);
  EXPECT_EQ(state.skipped_steps, 0);  // it was only to be counted
  EXPECT_EQ(state.successful_steps, 102);
}

TEST(Spikes, ASkippedOneLeavesTheLossScaleAndItsIntervalAlone) {
  LambState state = used_to_norms_of_2();
  const LambState before = state;
  LambPrepareRules rules = skipping();
  rules.loss_scale = {.dynamic = true, .growth_interval_steps = 1'000'000};
  prepare_update(state, 400.0, rules);
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.skipped_steps, 1);
  EXPECT_EQ(state.skips_in_a_row, 1);
  EXPECT_EQ(state.successful_steps, before.successful_steps);
  EXPECT_EQ(state.loss_scale, before.loss_scale);
  EXPECT_EQ(state.steps_since_growth, before.steps_since_growth);
  prepare_update(state, 4.0, rules);
  EXPECT_EQ(state.skip, 0);
  EXPECT_EQ(state.skips_in_a_row, 0);
}

TEST(Spikes, OneThatIsHeldHoldsEverythingUntilAnEarlierStateIsBack) {
  const LambState before = used_to_norms_of_2();
  LambPrepareRules rules = skipping();
  rules.spikes = SpikeRule::kRewind;
  LambState state = before;
  prepare_update(state, 4.0, rules);
  EXPECT_EQ(state.skip, 0);
  prepare_update(state, 400.0, rules);
  const LambState held = state;
  EXPECT_EQ(held.skip, 1);
  EXPECT_EQ(held.last_spike_step, 102);
  for (const double sum : {4.0, 1e6, kBad}) prepare_update(state, sum, rules);
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.last_spike_step, 102);  // the first one
  EXPECT_EQ(state.spikes, 1);
  EXPECT_EQ(state.successful_steps, held.successful_steps);
  EXPECT_EQ(state.skipped_steps, held.skipped_steps + 3);  // the steps still count
  EXPECT_EQ(state.skips_in_a_row, 1);
  EXPECT_EQ(state.usual_log_norm, held.usual_log_norm);
  state = before;
  prepare_update(state, 4.0, rules);
  EXPECT_EQ(state.skip, 0);
}

TEST(Spikes, OneHardlyMovesWhatIsUsual) {
  LambState state = used_to_norms_of_2();
  prepare_update(state, 1e30, skipping());
  EXPECT_LT(std::exp(state.usual_log_norm), 1.1 * 2.0);
}

TEST(Spikes, ANormThatStaysHighBecomesTheUsualOne) {
  LambState state = used_to_norms_of_2();
  int skips = 0;
  for (int i = 0; i < 100; ++i) {
    prepare_update(state, 16.0 * 16.0, skipping());
    skips += state.skip;
  }
  EXPECT_GT(skips, 2);
  EXPECT_LT(skips, 20);  // the default of train.stop_after_skips
  EXPECT_EQ(state.skip, 0);
}

TEST(Spikes, TheFirstNormsAndZeroAreNone) {
  LambState state;
  for (int i = 0; i < kNormsRemembered; ++i) {
    prepare_update(state, i % 2 == 0 ? 1e-6 : 1e6, skipping());
    EXPECT_EQ(state.spikes, 0) << i;
  }
  prepare_update(state, 0.0, skipping());
  EXPECT_EQ(state.spikes, 0);
  EXPECT_TRUE(std::isfinite(state.usual_log_norm));
}

TEST(LossScale, NeverBecomesInfinite) {
  LambState state{.loss_scale = 2e38f};
  for (int i = 0; i < 3; ++i) prepare_update(state, 1.0, kDynamic);
  EXPECT_EQ(state.loss_scale, 2e38f);
}

TEST(LossScale, StaysWhenNotDynamic) {
  LambState state;
  prepare_update(state, kBad, LambPrepareRules{.schedule = {.base = 1}});
  EXPECT_EQ(state.loss_scale, 1.0f);
  EXPECT_EQ(state.skipped_steps, 1);
  for (int i = 0; i < 3000; ++i) prepare_update(state, 1.0, {.schedule = {.base = 1}});
  EXPECT_EQ(state.loss_scale, 1.0f);
}

TEST(Prepare, UsesTheScaleThatTheGradientArrivedWithNotTheNextOne) {
  LambState state{.steps_since_growth = 2, .loss_scale = 4.0f};
  prepare_update(state, 64.0, kDynamic);  // scaled norm 8, unscaled 2
  EXPECT_EQ(state.loss_scale, 8.0f);
  EXPECT_FLOAT_EQ(state.gradient_norm, 2.0f);
  EXPECT_NEAR(state.gradient_multiplier, 0.5 / 4, 1e-6);
}

TEST(Prepare, ClipsOnlyAboveTheLimitAndNotAtAllWithLimitZero) {
  LambState state;
  prepare_update(state, 0.25, {.schedule = {.base = 1}, .max_gradient_norm = 1.0});
  EXPECT_EQ(state.gradient_multiplier, 1.0f);
  prepare_update(state, 100.0, {.schedule = {.base = 1}, .max_gradient_norm = 5.0});
  EXPECT_NEAR(state.gradient_multiplier, 0.5, 1e-6);
  EXPECT_FLOAT_EQ(state.gradient_norm, 10.0f);
  prepare_update(state, 100.0, {.schedule = {.base = 1}, .max_gradient_norm = 0.0});
  EXPECT_EQ(state.gradient_multiplier, 1.0f);
}

TEST(Prepare, CountsOnlySuccessfulUpdatesInTheScheduleAndTheBiasCorrection) {
  LambState state;
  const LambPrepareRules rules{
      .schedule = {.base = 1, .total_steps = 10}, .beta_1 = 0.5, .beta_2 = 0.75};
  prepare_update(state, 1.0, rules);
  EXPECT_FLOAT_EQ(state.learning_rate, 1.0f);
  prepare_update(state, kBad, rules);
  EXPECT_FLOAT_EQ(state.learning_rate, 1.0f);
  prepare_update(state, 1.0, rules);
  EXPECT_FLOAT_EQ(state.learning_rate, 0.9f);
  EXPECT_FLOAT_EQ(state.bias_correction_1, 1 - 0.25f);
  EXPECT_FLOAT_EQ(state.bias_correction_2, 1 - 0.5625f);
}

TEST(Prepare, NaNSkips) {
  LambState state;
  prepare_update(state, std::numeric_limits<double>::quiet_NaN(), kDynamic);
  EXPECT_EQ(state.skip, 1);
}

}  // namespace
}  // namespace bertha
