#include "harness/config/run_plan.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace bertha {
namespace {

TEST(EvalInterval, FollowsThePublishedTable) {
  const std::vector<std::pair<int64_t, int64_t>> table{
      {1, 150'000},     {256, 150'000},   {448, 150'000},  {768, 150'000},  {2048, 150'000},
      {3072, 175'000},  {4096, 175'000},  {4608, 200'000}, {8192, 225'000}, {12288, 275'000},
      {13888, 300'000}, {16384, 325'000}, {2171, 150'000}, {2172, 175'000}};
  for (const auto& [batch, samples] : table) {
    EXPECT_EQ(eval_interval_samples(batch), samples) << "batch " << batch;
  }
}

TEST(Target, IsTheHigherOfTheNumberAndTheMultipleOfTheConstantAnswer) {
  TrainConfig train;
  train.target_accuracy = 0.1;
  EXPECT_EQ(target_of(train, 0.5), 0.1);
  train.target_times_constant = 1.5;
  EXPECT_EQ(target_of(train, 0.5), 0.75);
  EXPECT_EQ(target_of(train, 0.05), 0.1);
  train.target_accuracy = 0;  // no target at all
  EXPECT_EQ(target_of(train, 0.5), 0);
}

Config small_run() {
  Config config;
  config.train.global_batch_seqs = 32;
  config.train.max_steps = 10;
  config.eval.every_samples = 100;
  return config;
}

std::vector<int64_t> eval_steps(const Config& config) {
  std::vector<int64_t> steps;
  for (const PlannedEval& eval : make_run_plan(config).evals) steps.push_back(eval.step);
  return steps;
}

TEST(RunPlan, EvaluatesOnTheFirstStepThatReachesEachPoint) {
  EXPECT_EQ(eval_steps(small_run()), (std::vector<int64_t>{4, 7, 10}));  // 100, 200, 300 of 320
}

TEST(RunPlan, StartAndSampleLimitMoveThePoints) {
  Config config = small_run();
  config.eval.start_samples = 32;
  EXPECT_EQ(eval_steps(config), (std::vector<int64_t>{1, 5, 8}));  // 32, 132, 232
  config.train.max_samples = 232;                                  // points stand below the limit
  EXPECT_EQ(eval_steps(config), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(make_run_plan(config).last_step, 8);
  EXPECT_EQ(make_run_plan(config).last_samples, 256);
}

TEST(RunPlan, CountsTheEvaluationAtTheEnd) {
  Config config = small_run();
  EXPECT_EQ(make_run_plan(config).num_evals(), 3);  // the last step has one of its own
  config.train.max_steps = 9;
  EXPECT_EQ(make_run_plan(config).num_evals(), 3);  // after steps 4, 7 and 9
  config.train.max_steps = 0;
  EXPECT_EQ(make_run_plan(config).num_evals(), 1);
  EXPECT_TRUE(make_run_plan(config).has_eval_at_end());
}

TEST(RunPlan, TwoPointsOnOneStepCountOnce) {
  Config config = small_run();
  config.eval.every_samples = 16;
  const std::vector<int64_t> steps = eval_steps(config);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(RunPlan, TheScheduleFollowsTheStepsUnlessTold) {
  Config config = small_run();
  EXPECT_EQ(make_run_plan(config).schedule_steps, 10);
  config.optimizer.schedule_steps = 25;
  EXPECT_EQ(make_run_plan(config).schedule_steps, 25);
}

TEST(RunPlan, TheRecipeOf448EvaluatesTwentyTimes) {
  Config config;  // the defaults are that recipe
  config.train.max_samples = 4'500'000;
  const RunPlan plan = make_run_plan(config);
  EXPECT_EQ(plan.last_step, 6700);
  EXPECT_EQ(plan.evals.size(), 20U);  // 150,000 .. 3,000,000 of 6,700 x 448 = 3,001,600
  EXPECT_EQ(plan.evals.front().step, 335);
  EXPECT_EQ(plan.evals.back().step, 6697);
}

}  // namespace
}  // namespace bertha
