#include "harness/report/text_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/report/text_format.h"

namespace bertha {
namespace {

using testing::HasSubstr;
using testing::Not;

Chart rising() {
  Chart chart{.title = "Accuracy", .x_label = "step"};
  chart.series.push_back({.label = "train 0.5", .x = {0, 50, 100}, .y = {0, 0.25, 0.5}});
  return chart;
}

TEST(TextChart, HasTheSizeAskedForWhateverItShows) {
  Chart full = rising();
  full.series.push_back({.label = "eval 0.4", .x = {30}, .y = {0.4}, .circles = true});
  full.mark = MarkLine{.label = "target 0.72", .value = 0.72};
  for (const Chart& chart : {Chart{.title = "Empty"}, rising(), full}) {
    for (const int64_t columns : {24, 80, 201}) {
      for (const int64_t rows : {4, 5, 30}) {
        const auto lines = chart_lines(chart, columns, rows);
        ASSERT_EQ(std::ssize(lines), rows);
        for (const std::string& line : lines) EXPECT_EQ(columns_of(line), columns) << line;
      }
    }
  }
}

TEST(TextChart, ALineRisesFromTheLowerLeftToTheUpperRight) {
  const auto lines = chart_lines(rising(), 20 + 10, 7);
  EXPECT_EQ(lines[0], fitted("Accuracy: \u2812 train 0.5", 30));
  EXPECT_THAT(lines[1], HasSubstr("0.50 \u2502"));
  EXPECT_TRUE(lines[1].ends_with("\u2809") || lines[1].ends_with("\u2808")) << lines[1];
  EXPECT_THAT(lines[5], HasSubstr("0 \u2502"));
  EXPECT_TRUE(lines[5].find("\u2502\u2880") != std::string::npos ||
              lines[5].find("\u2502\u28C0") != std::string::npos ||
              lines[5].find("\u2502\u2840") != std::string::npos ||
              lines[5].find("\u2502\u2860") != std::string::npos)
      << lines[5];
  EXPECT_EQ(lines[6], "          0           step 100");
}

TEST(TextChart, PointsOfEvaluationsAreLettersAndTheMarkADottedLine) {
  Chart chart = rising();
  chart.series.push_back({.label = "eval", .x = {100}, .y = {0.5}, .circles = true});
  chart.mark = MarkLine{.label = "target 1.000", .value = 1};
  const auto lines = chart_lines(chart, 60, 10);
  EXPECT_THAT(lines[0], HasSubstr("o eval,"));
  EXPECT_THAT(lines[0], HasSubstr("target 1.000"));
  EXPECT_THAT(lines[1], HasSubstr("1 \u2502\u2801"));
  int letters = 0;
  for (size_t i = 1; i < lines.size() - 1; ++i) letters += lines[i].ends_with("o");
  EXPECT_EQ(letters, 1);
}

TEST(TextChart, ValuesThatAreNotFiniteLeaveGapsAndOneValueIsALevelLine) {
  Chart chart{.title = "Loss", .x_label = "step"};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  chart.series.push_back({.label = "train", .x = {1, 2, 3, 4}, .y = {5, nan, HUGE_VAL, 5}});
  const auto lines = chart_lines(chart, 40, 6);
  EXPECT_THAT(lines[1], HasSubstr("5 \u2502"));
  chart.series[0].y = {nan, nan, nan, nan};
  EXPECT_THAT(chart_lines(chart, 40, 6)[1], HasSubstr("no data"));
}

TEST(TextChart, TextIsCutBetweenLetters) {
  EXPECT_EQ(fitted("a\u2812b", 2), "a\u2812");
  EXPECT_EQ(fitted("a\u2812b", 5), "a\u2812b  ");
  EXPECT_EQ(columns_of("a\u2812b"), 3);
}

}  // namespace
}  // namespace bertha
