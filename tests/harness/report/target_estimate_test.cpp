#include "harness/report/target_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/mlperf/published_curves.h"

namespace bertha {
namespace {

std::vector<EvalRecord> evals_of(const std::vector<double>& accuracies, int64_t interval,
                                 int64_t first = 1) {
  std::vector<EvalRecord> evals;
  for (const double accuracy : accuracies) {
    evals.push_back({.samples = interval * (std::ssize(evals) + first),
                     .mlm_accuracy = accuracy,
                     .seconds = 2});
  }
  return evals;
}

TEST(TargetEstimate, AStraightLineIsFollowed) {
  const auto evals = evals_of({0.10, 0.12, 0.14, 0.16, 0.18}, 1000, 10);
  const auto left = samples_to_target(evals, 0.20);
  ASSERT_TRUE(left.has_value());
  EXPECT_NEAR(left->low, 1000, 1);
  EXPECT_GE(left->high, left->middle);
  EXPECT_GE(left->middle, left->low);
}

TEST(TargetEstimate, NothingIsSaidWhereNothingIsKnown) {
  EXPECT_FALSE(samples_to_target(evals_of({0.1, 0.2, 0.3, 0.4}, 100), 0.5));        // too few
  EXPECT_FALSE(samples_to_target(evals_of({0.1, 0.2, 0.3, 0.4, 0.5}, 100), 0));     // no target
  EXPECT_FALSE(samples_to_target(evals_of({0.1, 0.2, 0.3, 0.4, 0.5}, 100), 0.45));  // reached
  EXPECT_FALSE(samples_to_target(evals_of({0.1, 0.1, 0.1, 0.1, 0.1}, 100), 0.5));   // flat
  EXPECT_FALSE(samples_to_target(evals_of({0.10, 0.13, 0.08, 0.12, 0.11}, 100), 0.5));
  EXPECT_FALSE(samples_to_target(evals_of({0.10, 0.11, 0.12, 0.13, 0.14}, 100), 0.9));  // far
  EXPECT_FALSE(samples_to_target(evals_of({0.1, 0.4, 0.6, 0.61, 0.615}, 100), 0.63));
}

TEST(TargetEstimate, SecondsCountTrainingAndEvaluationsFromNowOn) {
  const auto evals = evals_of({0.10, 0.12, 0.14, 0.16, 0.18}, 1000, 10);
  // 500 of the 1000 samples are left: 5 s of training, and half of an evaluation.
  const auto seconds = seconds_to_target(evals, 0.20, 14'500, 100);
  ASSERT_TRUE(seconds.has_value());
  EXPECT_NEAR(seconds->low, 6, 0.1);
  EXPECT_FALSE(seconds_to_target(evals, 0.20, 14'500, 0));
}

TEST(TargetEstimate, HoldsOnPublishedRuns) {
  constexpr double kTarget = 0.72;
  int estimates = 0, within = 0;
  std::vector<double> ratios;
  for (const PublishedCurves& curves : all_published_curves()) {
    for (const std::vector<double>& run : curves.runs) {
      const auto reached =
          std::find_if(run.begin(), run.end(), [](double accuracy) { return accuracy >= kTarget; });
      if (reached == run.end()) continue;
      for (auto end = run.begin() + 1; end <= reached; ++end) {
        const auto left = samples_to_target(evals_of({run.begin(), end}, 1), kTarget);
        if (!left) continue;
        const auto evals_left = static_cast<double>(reached - end + 1);
        ++estimates;
        // The target is seen by the next evaluation.
        within += std::ceil(left->low) <= evals_left && evals_left <= std::ceil(left->high);
        ratios.push_back(left->middle / evals_left);
      }
    }
  }
  EXPECT_GE(estimates, 100);
  EXPECT_GE(within, 0.95 * estimates);
  std::ranges::sort(ratios);
  EXPECT_GT(ratios[ratios.size() / 10], 0.6);
  EXPECT_NEAR(ratios[ratios.size() / 2], 1.0, 0.2);
}

}  // namespace
}  // namespace bertha
