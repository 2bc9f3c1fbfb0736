#include "harness/mlperf/published_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/files/text_file.h"
#include "harness/report/metrics.h"
#include "harness/report/plots.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

TEST(PublishedCurves, AreTenRunsThatRiseFromTheCheckpointToTheTarget) {
  ASSERT_EQ(all_published_curves().size(), 2u);
  for (const PublishedCurves& curves : all_published_curves()) {
    ASSERT_EQ(curves.runs.size(), 10u);
    int64_t missed = 0;
    for (const std::vector<double>& run : curves.runs) {
      EXPECT_GT(run.front(), kUntrainedAccuracy);
      for (size_t i = 1; i < run.size(); ++i) EXPECT_GT(run[i], run[i - 1] - 0.0005);
      for (size_t i = 0; i + 1 < run.size(); ++i) EXPECT_LT(run[i], 0.72005);
      missed += run.back() < 0.72 ? 1 : 0;
    }
    EXPECT_EQ(missed, curves.batch_seqs == 448 ? 1 : 0);  // one ran out of steps
  }
}

TEST(PublishedCurves, TheNearestBatchSizeIsTaken) {
  EXPECT_EQ(published_curves_near(64).batch_seqs, 448);
  EXPECT_EQ(published_curves_near(448).batch_seqs, 448);
  EXPECT_EQ(published_curves_near(768).batch_seqs, 768);
  EXPECT_EQ(published_curves_near(4096).batch_seqs, 768);
}

TEST(PublishedCurves, TheBandHoldsAllRunsAndEndedOnesKeepTheirAccuracy) {
  for (const PublishedCurves& curves : all_published_curves()) {
    const ChartBand band = accuracy_band(curves);
    ASSERT_EQ(band.low.size(), band.x.size());
    ASSERT_EQ(band.high.size(), band.x.size());
    EXPECT_EQ(band.low[0], kUntrainedAccuracy);
    for (const std::vector<double>& run : curves.runs) {
      for (size_t i = 1; i < band.x.size(); ++i) {
        const double accuracy = run[std::min(i, run.size()) - 1];
        EXPECT_LE(band.low[i], accuracy);
        EXPECT_GE(band.high[i], accuracy);
      }
    }
  }
  const ChartBand band = accuracy_band(published_curves_near(768));
  EXPECT_EQ(band.x[3], 450'000);
  EXPECT_EQ(band.low[3], 0.4677);
  EXPECT_EQ(band.high[3], 0.5085);
  EXPECT_EQ(band.x.back(), 2'700'000);
  EXPECT_EQ(band.low.back(), 0.7200);
}

/// Metrics of a run with this many parameters, and whether the published band is drawn for it.
bool drawn(int64_t parameters, double target, PublishedBand published) {
  const TempFolder folder;
  Config config = test::test_config();
  config.train.target_accuracy = target;
  RunFacts facts = test::test_facts();
  facts.parameters = parameters;
  {
    MetricsFile file(folder.path("m"));
    file.run(config, facts);
    file.eval(test::test_eval(335, 0.37));
  }
  const Metrics metrics = read_metrics(folder.path("m"));
  plot_metrics(metrics, folder.path("plots"), published_band(metrics.run, published));
  return std::filesystem::exists(folder.path("plots/accuracy_by_samples.svg"));
}

TEST(PublishedBand, IsDrawnForBertLargeWithTheBenchmarksTargetOrWhenAskedFor) {
  constexpr int64_t kLarge = 336'232'258, kBase = 110'106'428;
  EXPECT_TRUE(drawn(kLarge, 0.72, PublishedBand::kAuto));
  EXPECT_FALSE(drawn(kLarge, 0, PublishedBand::kAuto));
  EXPECT_FALSE(drawn(kBase, 0.72, PublishedBand::kAuto));
  EXPECT_TRUE(drawn(kBase, 0.1, PublishedBand::kAlways));
  EXPECT_FALSE(drawn(kLarge, 0.72, PublishedBand::kNever));
}

TEST(PublishedBand, TheChartHasSamplesBelowAndTheBandBehindTheRun) {
  const TempFolder folder;
  {
    MetricsFile file(folder.path("m"));
    file.run(test::test_config(), test::test_facts());
    file.eval(test::test_eval(335, 0.3731));
  }
  const Metrics metrics = read_metrics(folder.path("m"));
  plot_metrics(metrics, folder.path(), published_band(metrics.run, PublishedBand::kAlways));
  const std::string svg = read_text_file(folder.path("accuracy_by_samples.svg"));
  EXPECT_THAT(svg, testing::HasSubstr("eval 0.3731"));
  EXPECT_THAT(svg, testing::HasSubstr("Baidu v2.0, 8 A100, batch 448"));
  EXPECT_THAT(svg, testing::HasSubstr("target 0.720"));
  EXPECT_THAT(svg, testing::HasSubstr(">3M<"));  // the band reaches 3,000,000 samples
  EXPECT_LT(svg.find("<polygon class=\"band\""), svg.find("<circle"));
}

}  // namespace
}  // namespace bertha
