#include "harness/train/resume.h"

#include <gtest/gtest.h>

#include "harness/config/run_plan.h"
#include "harness/optim/lamb_settings.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha {
namespace {

Config of_schedule(int64_t steps) {
  Config config;
  config.optimizer.base_learning_rate = 0.01;
  config.optimizer.warmup_steps = 10;
  config.train.max_steps = steps;
  return config;
}

/// What the optimizer remembers after this many updates of a run.
LambState after(int64_t updates, const Config& config) {
  const LambPrepareRules rules =
      lamb_prepare_rules(config.optimizer, make_run_plan(config).schedule_steps);
  LambState state;
  state.successful_steps = updates;
  state.learning_rate = static_cast<float>(scheduled_learning_rate(rules.schedule, updates - 1));
  return state;
}

TEST(LearningRateChange, TheSameScheduleSaysNothingAtAnyStep) {
  const Config config = of_schedule(100);
  for (int64_t updates = 0; updates <= 101; ++updates) {
    EXPECT_EQ(learning_rate_change(config, after(updates, config)), "") << updates;
  }
}

TEST(LearningRateChange, ALongerScheduleNamesTheRateBeforeAndAfter) {
  const LambState end = after(100, of_schedule(100));
  const std::string text = learning_rate_change(of_schedule(200), end);
  EXPECT_THAT(text, HasSubstr("from 1.0e-4 at the last step to 5.0e-3 at the next"));
  EXPECT_THAT(text, HasSubstr("train.max_steps"));
}

TEST(LearningRateChange, AnotherBaseIsOneToo) {
  Config config = of_schedule(100);
  const LambState state = after(50, config);
  config.optimizer.base_learning_rate = 0.02;
  EXPECT_THAT(learning_rate_change(config, state), HasSubstr(" to 1.0e-2 at the next"));
  // Where the two schedules agree so far, nothing has changed yet.
  EXPECT_EQ(learning_rate_change(of_schedule(200), after(5, of_schedule(100))), "");
}

}  // namespace
}  // namespace bertha
