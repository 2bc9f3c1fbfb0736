#include "kernels/base/bench/bench_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace bertha {
namespace {

TEST(BenchReport, JsonHasTheSameFigures) {
  BenchReport report{.peak_flops_per_second = 800e12};
  report.rows = {{.operation = "linear_fwd",
                  .kernels = "grouped",
                  .times_us = {4, 1, 2, 3, 5},
                  .flops = 1.2e9,
                  .checked = "y 10/256"},
                 {.operation = "fill", .error = HUGE_VAL}};
  report.device = "a \"GPU\"";
  report.notes = {"one", "two"};
  report.mixes = {{.name = "all 512", .lengths = {512, 512}}};
  const auto json = nlohmann::json::parse(bench_json(report));
  EXPECT_EQ(json["device"], "a \"GPU\"");
  EXPECT_EQ(json["notes"], (std::vector<std::string>{"one", "two"}));
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
