#include "kernels/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace bertha {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchReport example() {
  BenchReport report{.model = "tiny",
                     .device = "a device",
                     .precision = "bf16",
                     .date = "2026-11-21",
                     .tokens = 256,
                     .peak_flops_per_second = 800e12,
                     .rows = {}};
  report.rows.push_back({.operation = "linear_fwd",
                         .shape = "QKV",
                         .times_us = {4, 1, 2, 3, 5},
                         .flops = 1.2e9,
                         .bytes = 6e6,
                         .error = 0.25,
                         .worst = "y",
                         .checked = "y 10/256"});
  report.rows.push_back({.operation = "fill",
                         .shape = "256x64",
                         .times_us = {10},
                         .bytes = 20e6,
                         .copy_us = 8,
                         .error = 0,
                         .worst = "values",
                         .checked = {}});
  return report;
}

TEST(BenchReport, ComparesProductsWithTheLargeOneAndTheRestWithACopy) {
  BenchReport report = example();
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[0]), 0.5);  // 400 TFLOP/s in the median
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[1]), 0.8);
  report.peak_bytes_per_second = 4e12;
  EXPECT_DOUBLE_EQ(share_of_roof(report, report.rows[1]), 0.5);
  report.peak_flops_per_second = 0;
  EXPECT_EQ(share_of_roof(report, report.rows[0]), 0);
}

TEST(BenchReport, TextHasUnitsAndSaysWhatIsWrong) {
  BenchReport report = example();
  report.notes = {"persistent is not measured: it is not there"};
  report.rows[0].kernels = "grouped";
  const std::string text = bench_text(report);
  EXPECT_THAT(text, HasSubstr("operations of tiny, bf16, 256 token rows, a device, 2026-11-21\n"
                              "persistent is not measured: it is not there\n"));
  EXPECT_THAT(text, HasSubstr("QKV, grouped  "));
  EXPECT_THAT(text, HasSubstr("(us)"));
  EXPECT_THAT(text, HasSubstr("400.0 TFLOP/s       50.0\n"));
  EXPECT_THAT(text, HasSubstr("2000.0 GB/s          80.0\n"));
  EXPECT_THAT(text, Not(HasSubstr("WRONG")));
  EXPECT_TRUE(all_verified(report));
  report.rows[0].error = 1.01;
  EXPECT_FALSE(all_verified(report));
  EXPECT_THAT(bench_text(report), HasSubstr("WRONG: y\n"));
}

TEST(BenchReport, JsonHasTheSameFigures) {
  BenchReport report = example();
  report.rows[1].error = HUGE_VAL;
  report.rows[0].kernels = "grouped";
  report.mixes = {{.name = "all 512", .lengths = {512, 512}}};
  const auto json = nlohmann::json::parse(bench_json(report));
  EXPECT_EQ(json["mixes"][0]["lengths"], (std::vector<int>{512, 512}));
  EXPECT_EQ(json["verified"], false);
  const auto& row = json["operations"][0];
  EXPECT_EQ(row["median_us"], 3.0);
  EXPECT_DOUBLE_EQ(row["p99_us"].get<double>(), 4.96);
  EXPECT_EQ(row["share_of_roof"], 0.5);
  EXPECT_EQ(row["launches"], 5);
  EXPECT_EQ(row["kernels"], "grouped");
  EXPECT_EQ(row["compared"], "y 10/256");
  EXPECT_EQ(json["operations"][1]["verified"], false);
  EXPECT_TRUE(json["operations"][1]["error_over_allowed"].is_null());  // JSON has no infinity
}

}  // namespace
}  // namespace bertha
