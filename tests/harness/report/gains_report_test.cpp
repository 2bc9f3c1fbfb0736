#include "harness/report/gains_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/error_of.h"

namespace bertha {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

GainsReport gains_example() {
  GainsReport report{.model = "large",
                     .device = "a GPU",
                     .precision = "bf16",
                     .date = "2026-11-25",
                     .tokens_per_step = 24576,
                     .step_ms = 100,
                     .rows = chosen_gain_rows({"addto", "graphs", "exchange"})};
  for (GainRow& row : report.rows) {
    if (row.name == "graphs") {
      row.off_ms = {109, 110, 111};
      row.on_ms = {100, 100, 100};
    } else if (row.name == "addto") {
      row.off_ms = {0.3};
      row.on_ms = {0.2};
      row.calls_per_step = 48;
    } else {
      row.reason = "needs 2 ranks or more";
    }
  }
  return report;
}

TEST(GainsReport, GainsAreOfMediansAndOperationsAreScaledToTheStep) {
  GainsReport report = gains_example();
  const GainRow& addto = report.rows[1];
  const GainRow& graphs = report.rows[2];
  EXPECT_NEAR(gain_percent(graphs), 10, 1e-9);
  EXPECT_NEAR(step_gain_percent(report, graphs), 10, 1e-9);
  EXPECT_NEAR(gain_percent(addto), 50, 1e-9);
  EXPECT_NEAR(step_gain_percent(report, addto), 4.8, 1e-9);  // 48 times 0.1 of 100 ms
  EXPECT_EQ(step_gain_percent(report, report.rows[0]), 0);   // it has not run
  report.step_ms = 0;
  EXPECT_EQ(step_gain_percent(report, addto), 0);
}

TEST(GainsReport, AnOperationThatAStepLacksHasAGainOfItsOwn) {
  GainsReport report = gains_example();
  report.rows = chosen_gain_rows({"batch-norm-mask"});
  report.rows[0].off_ms = {0.3};
  report.rows[0].on_ms = {0.2};
  EXPECT_NEAR(gain_percent(report.rows[0]), 50, 1e-9);
  EXPECT_THAT(gains_text(report),
              ContainsRegex("\nbatch-norm-mask +operation .*\\+50.0 % +- +12.9 %"));
  EXPECT_EQ(gains_json(report)["rows"][0]["step_gain_percent"], nullptr);
  EXPECT_THAT(gains_svg(report), testing::Not(HasSubstr(">batch-norm-mask</text>")));
}

TEST(GainsReport, TheTextHasTheSourcesGainAndWhyARowDidNotRun) {
  const std::string text = gains_text(gains_example());
  EXPECT_THAT(text, HasSubstr("step as configured: 100.000 ms, 24576 tokens\n"));
  EXPECT_THAT(text, ContainsRegex("\naddto +operation .*\\+50.0 % +\\+4.8 % +1.1 % \\[1\\]\n"));
  EXPECT_THAT(text, ContainsRegex("\ngraphs +step +110.000 \\(109.200 to 110.800\\)"));
  EXPECT_THAT(text, HasSubstr("    not run: needs 2 ranks or more\n"));
  EXPECT_THAT(text, HasSubstr("[1] Baidu, BERT in MLPerf Training v2.0"));
}

TEST(GainsReport, TheJsonHasEveryRow) {
  const ReportJson json = gains_json(gains_example());
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][0]["reason"], "needs 2 ranks or more");
  EXPECT_FALSE(json["rows"][0].contains("gain_percent"));
  EXPECT_EQ(json["rows"][1]["source_percent"], 1.1);
  EXPECT_EQ(json["rows"][2]["off_ms"]["median"], 110.0);
  EXPECT_EQ(json["rows"][2]["source_percent"], nullptr);
}

TEST(GainsReport, TheChartHasABarForEachRowOfTheStepAndAMarkForItsSource) {
  const std::string svg = gains_svg(gains_example());
  EXPECT_THAT(svg, HasSubstr(">addto</text>"));
  EXPECT_THAT(svg, HasSubstr(">4.8</text>"));
  EXPECT_THAT(svg, HasSubstr(">10.0</text>"));
  EXPECT_THAT(svg, testing::Not(HasSubstr(">exchange</text>")));
  size_t marks = 0;
  for (size_t at = 0; (at = svg.find("class=\"target\"", at)) != std::string::npos; ++at) ++marks;
  EXPECT_EQ(marks, 2u);  // of addto, and in the legend
}

TEST(GainsReport, RowsAreChosenByName) {
  std::set<std::string> names;
  for (const GainRow& row : gain_rows()) names.insert(row.name);
  EXPECT_EQ(names.size(), gain_rows().size());
  EXPECT_EQ(chosen_gain_rows({}).size(), gain_rows().size());
  EXPECT_THAT(error_of([] { chosen_gain_rows({"graph"}); }, ExitCode::kUsage),
              HasSubstr("--only graph is no row; want some of unpad-most,"));
}

}  // namespace
}  // namespace bertha
