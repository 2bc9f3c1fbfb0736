#include "harness/mlperf/rcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bertha {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Samples = std::vector<std::optional<double>>;

/// Ten runs with this olympic mean, one faster and one slower than all others.
Samples ten_runs(double mean) {
  Samples samples(10, mean);
  samples[3] = mean - 200'000;
  samples[7] = mean + 300'000;
  return samples;
}

TEST(ReferencePoint, IsTheMeasuredOneWhereThereIsOne) {
  // batch, mean and least mean as the official checker prints them
  for (const auto& [batch, mean, least] : {std::array{448.0, 2414421.333, 2274732.029},
                                           {4608.0, 2798080.0, 2702871.339},
                                           {6144.0, 3319125.333, 3212483.064},
                                           {6912.0, 3601920.0, 3513378.467},
                                           {12288.0, 4465066.667, 4400681.926},
                                           {13056.0, 4645333.333, 4515190.407},
                                           {16384.0, 5505422.222, 5400269.129}}) {
    const auto point = reference_point(batch);
    ASSERT_TRUE(point);
    EXPECT_NEAR(point->mean_samples, mean, 0.01);
    EXPECT_NEAR(point->least_mean_samples, least, 0.01);
    EXPECT_EQ(point->low_batch_seqs, point->high_batch_seqs);
  }
}

TEST(ReferencePoint, LiesOnTheLineBetweenItsNeighbours) {
  const auto point = reference_point(768);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->low_batch_seqs, 448);
  EXPECT_EQ(point->high_batch_seqs, 4608);
  EXPECT_NEAR(point->mean_samples, 2'443'934, 0.5);
  EXPECT_NEAR(point->std_samples, 192'283, 0.5);
  EXPECT_NEAR(point->least_mean_samples, 2'306'738, 0.5);
}

TEST(ReferencePoint, IsTheSmallestBelowAllAndNoneAboveAll) {
  EXPECT_EQ(reference_point(64)->mean_samples, reference_point(448)->mean_samples);
  EXPECT_FALSE(reference_point(16'385));
}

TEST(OlympicMean, DropsTheLowestAndTheHighest) {
  EXPECT_EQ(olympic_mean({5, 1, 3, 100}), 4);
  EXPECT_EQ(olympic_mean({2, 9, 4}), 4);
  EXPECT_FALSE(olympic_mean({1, 2}));
}

TEST(ConvergenceTest, PassesAsSlowAsTheReferenceAndScalesWhatIsFaster) {
  ConvergenceTest test = test_convergence(448, ten_runs(2'414'422));
  EXPECT_EQ(test.verdict, Convergence::kPassed);
  EXPECT_EQ(test.score_factor, 1);
  EXPECT_THAT(verdict_text(test), StartsWith("passed: the runs needed 2414422 samples"));

  test = test_convergence(448, ten_runs(2'300'000));
  EXPECT_EQ(test.verdict, Convergence::kScaled);
  EXPECT_NEAR(test.score_factor, 2414421.3333 / 2'300'000, 1e-9);
  EXPECT_THAT(verdict_text(test), HasSubstr("needs scaling by 1.0497"));
}

TEST(ConvergenceTest, IsTooFastBelowTheLeastMean) {
  EXPECT_TRUE(test_convergence(448, ten_runs(2'274'733)).passed());
  const ConvergenceTest test = test_convergence(448, ten_runs(2'274'731));
  EXPECT_EQ(test.verdict, Convergence::kTooFast);
  EXPECT_FALSE(test.passed());
  EXPECT_THAT(verdict_text(test), StartsWith("too fast: "));
}

TEST(ConvergenceTest, BatchesOutsideThePointsMissOne) {
  EXPECT_EQ(test_convergence(20'000, ten_runs(9e6)).verdict, Convergence::kNoPoint);
  EXPECT_EQ(test_convergence(64, ten_runs(2'200'000)).verdict, Convergence::kNoPoint);
  EXPECT_EQ(test_convergence(64, ten_runs(2'500'000)).verdict, Convergence::kPassed);
  EXPECT_THAT(verdict_text(test_convergence(20'000, ten_runs(9e6))),
              HasSubstr("no reference point for batch 20000, the largest is for 16384"));
}

TEST(ConvergenceTest, OneRunThatMissedTheTargetIsTheSlowest) {
  Samples samples = ten_runs(2'500'000);
  samples[7] = std::nullopt;
  EXPECT_EQ(test_convergence(448, samples).mean_samples, 2'500'000);
  EXPECT_TRUE(test_convergence(448, samples).passed());
  samples[0] = std::nullopt;
  EXPECT_EQ(test_convergence(448, samples).verdict, Convergence::kNotConverged);
  EXPECT_THAT(verdict_text(test_convergence(448, samples)), HasSubstr("2 of 10 runs missed"));
}

TEST(ConvergenceTest, NeedsThreeRuns) {
  EXPECT_EQ(test_convergence(448, {2.5e6, 2.5e6}).verdict, Convergence::kTooFewRuns);
  EXPECT_TRUE(test_convergence(448, {2.5e6, 2.5e6, 2.5e6}).passed());
}

}  // namespace
}  // namespace bertha
