#include "harness/report/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "data/files/text_file.h"
#include "harness/report/metrics.h"
#include "harness/report/plots.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/error_of.h"

namespace bertha {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Space-separated name="value" pairs.
void expect_attributes(std::string text) {
  while (!text.empty()) {
    const size_t equals = text.find("=\"");
    ASSERT_NE(equals, std::string::npos) << text;
    const std::string name = text.substr(1, equals - 1);
    EXPECT_EQ(text[0], ' ') << text;
    EXPECT_EQ(name.find_first_of(" \"<"), std::string::npos) << text;
    const size_t end = text.find('"', equals + 2);
    ASSERT_NE(end, std::string::npos) << text;
    text.erase(0, end + 1);
  }
}

/// Every element is closed in order, every attribute quoted: what a browser needs to draw it.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  size_t after = 0;
  for (size_t begin = svg.find('<'); begin != std::string::npos; begin = svg.find('<', after)) {
    EXPECT_EQ(svg.substr(after, begin - after).find('>'), std::string::npos);
    const size_t end = svg.find('>', begin);
    ASSERT_NE(end, std::string::npos);
    after = end + 1;
    std::string tag = svg.substr(begin + 1, end - begin - 1);
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(tag, "/" + open.back());
      open.pop_back();
      continue;
    }
    const bool empty = tag.ends_with('/');
    if (empty) tag.pop_back();
    const std::string name = tag.substr(0, tag.find(' '));
    expect_attributes(tag.substr(name.size()));
    if (!empty) open.push_back(name);
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(svg.substr(after), "\n");
}

std::vector<double> ticks(double low, double high, AxisFit fit = AxisFit::kToTicks) {
  return make_axis(low, high, fit).ticks;
}

MATCHER_P(AreAbout, wanted, "") {
  if (arg.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::fabs(arg[i] - wanted[i]) > 1e-12 * (1 + std::fabs(wanted[i]))) return false;
  }
  return true;
}

TEST(SvgAxis, TicksAreRoundNumbersAroundTheData) {
  using V = std::vector<double>;
  EXPECT_THAT(ticks(0, 1), AreAbout(V{0, 0.2, 0.4, 0.6, 0.8, 1.0}));
  EXPECT_THAT(ticks(0.3, 10.7), AreAbout(V{0, 2, 4, 6, 8, 10, 12}));
  EXPECT_THAT(ticks(-1.5, 1.5), AreAbout(V{-1.5, -1, -0.5, 0, 0.5, 1, 1.5}));
  EXPECT_THAT(ticks(0, 4.25e-4), AreAbout(V{0, 1e-4, 2e-4, 3e-4, 4e-4, 5e-4}));
  EXPECT_THAT(ticks(50, 5350, AxisFit::kToData), AreAbout(V{1000, 2000, 3000, 4000, 5000}));
}

TEST(SvgAxis, AnEmptyRangeIsWidenedAroundItsValue) {
  for (const double value : {0.0, 5.0, -3.0, 1e-9}) {
    const Axis axis = make_axis(value, value, AxisFit::kToTicks);
    EXPECT_LT(axis.low, value);
    EXPECT_GT(axis.high, value);
    EXPECT_GE(axis.ticks.size(), 2u);
  }
}

TEST(SvgAxis, EveryRangeHasAFewRisingTicksInside) {
  for (double low = 1e-6; low < 1e6; low *= 3.7) {
    for (double factor = 1.001; factor < 1e9; factor *= 4.3) {
      const Axis axis = make_axis(low, low * factor, AxisFit::kToTicks);
      ASSERT_GE(axis.ticks.size(), 2u) << low << " x " << factor;
      ASSERT_LE(axis.ticks.size(), 16u) << low << " x " << factor;
      ASSERT_LE(axis.low, low * (1 + 1e-8));
      ASSERT_GE(axis.high, low * factor * (1 - 1e-8));
      for (size_t i = 1; i < axis.ticks.size(); ++i) {
        ASSERT_LT(axis.ticks[i - 1], axis.ticks[i]);
      }
    }
  }
}

TEST(SvgAxis, BoundsThatCannotBeDrawnAreRefused) {
  EXPECT_THROW(make_axis(2, 1, AxisFit::kToTicks), Error);
  EXPECT_THROW(make_axis(kNan, 1, AxisFit::kToTicks), Error);
}

TEST(SvgAxis, LabelsAreShort) {
  const std::vector<std::pair<double, std::string>> labels = {
      {0, "0"},    {0.25, "0.25"}, {-0.5, "-0.5"},
      {3, "3"},    {9000, "9000"}, {12500, "12.5k"},
      {2e6, "2M"}, {3e-4, "3e-4"}, {-2.5e-7, "-2.5e-7"},
      {1e9, "1G"}};
  for (const auto& [value, label] : labels) EXPECT_EQ(tick_label(value), label);
}

Chart chart_of(std::vector<double> y) {
  ChartSeries series{.label = "a <b> & \"c\"", .x = {}, .y = {}};
  for (size_t i = 0; i < y.size(); ++i) series.x.push_back(static_cast<double>(i));
  series.y = std::move(y);
  return {.title = "Title & <more>", .x_label = "x", .y_label = "y", .series = {series}};
}

TEST(ChartSvg, PointsLandWhereTheAxesSay) {
  // x from 0 to 2 spans pixels 78 to 876; y from 0 to 1 spans 418 to 74.
  const std::string svg = chart_svg(chart_of({0, 1, 0.5}));
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("points=\"78.0,418.0 78.0,418.0 477.0,74.0 876.0,246.0\""));
  EXPECT_THAT(svg, HasSubstr("Title &amp; &lt;more&gt;"));
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
}

TEST(ChartSvg, ValuesThatAreNotFiniteLeaveAGap) {
  const std::string svg = chart_svg(chart_of({1, 2, kNan, 3, 4}));
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "<polyline"), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(ChartSvg, ATargetIsDrawnAndExtendsTheAxis) {
  Chart chart = chart_of({0, 1});
  chart.mark = MarkLine{.label = "target 3", .value = 3};
  const std::string svg = chart_svg(chart);
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "<polyline class=\"target\" points=\"78.0,74.0 876.0,74.0\""), 1);
  EXPECT_THAT(svg, HasSubstr("target 3"));
}

TEST(ChartSvg, ABandIsOneAreaAndExtendsTheAxes) {
  Chart chart = chart_of({0, 1});
  chart.band = ChartBand{.label = "others", .x = {0, 2}, .low = {0, 1}, .high = {0, 2}};
  const std::string svg = chart_svg(chart);
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("<polygon class=\"band\" points=\"78.0,418.0 876.0,246.0 876.0,74.0 "
                             "78.0,418.0 \"/>"));
  EXPECT_THAT(svg, HasSubstr("others"));
  chart.band->high.pop_back();
  EXPECT_THROW(chart_svg(chart), Error);
}

TEST(ChartSvg, SeriesBeyondTheStylesStartAgain) {
  Chart chart = chart_of({0, 1});
  chart.series.resize(8, chart.series[0]);
  chart.series[7].circles = true;
  const std::string svg = chart_svg(chart);
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "<polyline class=\"line s0\""), 2);
  EXPECT_EQ(count(svg, "<polyline class=\"line s1\""), 2);
  EXPECT_EQ(count(svg, "<circle"), 2);
}

TEST(ChartSvg, WithoutAnyPointItSaysSo) {
  for (const Chart& chart :
       {Chart{.title = "t"}, chart_of({}), chart_of({kNan, kNan}), Chart{.bars = {0, 0}}}) {
    const std::string svg = chart_svg(chart);
    expect_well_formed(svg);
    EXPECT_THAT(svg, HasSubstr("no data"));
  }
}

TEST(ChartSvg, ASinglePointIsADot) {
  const std::string svg = chart_svg(chart_of({5}));
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "<polyline"), 1);
}

TEST(ChartSvg, UnequalNumbersOfValuesAreRefused) {
  Chart chart = chart_of({1, 2});
  chart.series[0].x.pop_back();
  EXPECT_THROW(chart_svg(chart), Error);
}

TEST(ChartSvg, BarsAreAsHighAsTheirCounts) {
  const std::string svg = chart_svg({.title = "h",
                                     .x_label = "tokens",
                                     .bars = {5, 0, 10, 1},
                                     .mark = MarkLine{.label = "mean 2", .value = 2}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "<rect class=\"bar\""), 3);
  EXPECT_THAT(svg, HasSubstr("x=\"78.00\" y=\"246.0\" width=\"198.50\" height=\"172.0\""));
  EXPECT_THAT(svg, HasSubstr("x=\"477.00\" y=\"74.0\" width=\"198.50\" height=\"344.0\""));
  EXPECT_THAT(svg, HasSubstr("<polyline class=\"target\" points=\"477.0,418.0 477.0,74.0\""));
}

TEST(Plots, MetricsBecomeFourChartsWithTheirLastValues) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.run(test::test_config(), test::test_facts());
  for (const int64_t step : {10, 20, 30}) file.step(test::test_step(step));
  for (const int64_t step : {15, 30}) {
    file.eval(test::test_eval(step, 0.01 * static_cast<double>(step)));
  }
  plot_metrics(read_metrics(folder.path("m")), folder.path("new/plots"));
  const auto plot = [&](const char* name) {
    const std::string svg = read_text_file(folder.path("new/plots/") + name);
    expect_well_formed(svg);
    return svg;
  };
  EXPECT_THAT(plot("loss.svg"),
              testing::AllOf(HasSubstr("train 8.000"), HasSubstr("next sentence 0.750"),
                             HasSubstr("eval, masked tokens 2.125")));
  EXPECT_EQ(count(plot("accuracy.svg"), "<circle"), 2);
  EXPECT_THAT(
      plot("accuracy.svg"),
      testing::AllOf(HasSubstr("train 0.300"), HasSubstr("eval 0.300"), HasSubstr("target 0.720")));
  EXPECT_THAT(plot("throughput.svg"), HasSubstr("train 6.27k"));
  EXPECT_THAT(plot("learning_rate.svg"), HasSubstr("learning rate 3.2e-4"));
}

TEST(Plots, TheLossOfMaskedTokensStandsAloneWhereNextSentencesAreNotTrained) {
  const TempFolder folder;
  Metrics metrics;
  metrics.steps = {test::without_next_sentence(test::test_step(10))};
  plot_metrics(metrics, folder.path("plots"));
  EXPECT_THAT(read_text_file(folder.path("plots/loss.svg")),
              testing::AllOf(HasSubstr("masked tokens 9.250"), testing::Not(HasSubstr("train")),
                             testing::Not(HasSubstr("next sentence"))));
}

TEST(Plots, ARunThatEndedBeforeItsFirstStepHasEmptyCharts) {
  const TempFolder folder;
  MetricsFile(folder.path("m")).run(test::test_config(), test::test_facts());
  plot_metrics(read_metrics(folder.path("m")), folder.path("plots"));
  EXPECT_THAT(read_text_file(folder.path("plots/loss.svg")), HasSubstr("no data"));
}

TEST(Plots, APlaceThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  MetricsFile(folder.path("m")).run(test::test_config(), test::test_facts());
  EXPECT_THAT(
      error_of([&] { plot_metrics(read_metrics(folder.path("m")), folder.path("m/plots")); }),
      HasSubstr(folder.path("m/plots")));
}

}  // namespace
}  // namespace bertha
