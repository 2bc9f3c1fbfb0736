#include "harness/report/step_bench_report.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

StepBenchReport example() {
  return {.model = "bert-large",
          .gelu = GeluForm::kErf,
          .device = "a device",
          .kernels = {.attention = "grouped", .gelu_gemms = "library"},
          .precision = "bf16",
          .ranks = 8,
          .warmup_steps = 3,
          .step_ms = {50, 60, 40, 50, 100},
          .seqs_global = 448,
          .tokens_global = 120000,
          .masked_global = 17000,
          .most_tokens_per_rank = 15100,
          .model_flops_global = 96e12,
          .phase_ms = {15, 30, 3, 6},
          .peak_flops_per_second = 790e12,
          .peak_memory_bytes = int64_t{40} << 30,
          .total_memory_bytes = int64_t{140} << 30,
          .joules_global = 288,
          .operations = {{.name = "linear_fwd 4x5x6", .calls = 24, .ms = 12, .flops = 6e12},
                         {.name = "fill", .calls = 2.5, .ms = 0.5, .bytes = 1e9},
                         {.name = "lamb_prepare", .calls = 1, .ms = 0.1}},
          .loss = 10.5};
}

TEST(Percentile, LiesBetweenTheTwoNearest) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({7}, 0.9), 7);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(percentile({0, 10}, 0.1), 1);
}

TEST(StepBenchRates, AreThoseOfTheMeanStep) {
  const ReportJson rates = report_of(example()).json();
  EXPECT_DOUBLE_EQ(rates["seqs_per_second"].get<double>(), 448 / 0.060);
  EXPECT_DOUBLE_EQ(rates["tokens_per_second"].get<double>(), 120000 / 0.060);
  EXPECT_DOUBLE_EQ(rates["model_flops_per_second_per_rank"].get<double>(), 12e12 / 0.060);
  EXPECT_DOUBLE_EQ(rates["utilization"].get<double>(), 200.0 / 790.0);
  StepBenchReport unknown = example();
  unknown.peak_flops_per_second = 0;
  EXPECT_TRUE(report_of(unknown).json()["utilization"].is_null());
}

TEST(StepBenchText, SaysWhatWasFound) {
  const std::string text = report_of(example()).text();
  for (const char* const row : {
           "training step of bert-large, erf GELU, bf16, 8 ranks, a device, attention grouped, "
           "GELU GEMMs library\n",
           "  steps                   5 timed after 3, 1 micro-batch each\n",
           "  tokens per step         120000.0, fullest rank 15100.0; masked 17000.0\n",
           "  step, median            50.000 ms\n",
           "  step, p10 to p90        44.000 to 84.000 ms\n",
           "  model TFLOP/s per rank  200.000\n",
           "  utilization (MFU)       25.3 % of 790.0 TFLOP/s\n",
           "  device memory, peak     40.0 GiB of 140.0 GiB\n",
           "  energy                  288.0 J per step, 600 W per GPU\n",
           "  training                mean loss 10.500, 0 updates skipped\n",
           "  backward                30.000 ms  50.0 %\n",
           "  between steps           6.000 ms  10.0 %\n",
       }) {
    EXPECT_THAT(text, HasSubstr(row));
  }
  EXPECT_THAT(text, ContainsRegex("  linear_fwd 4x5x6 +24.0 +12.000 +20.0 % +500.00 TFLOP/s\n"));
  EXPECT_THAT(text, ContainsRegex("  fill +2.5 +0.500 +0.8 % +2000.0 GB/s\n"));
  EXPECT_THAT(text, ContainsRegex("  lamb_prepare +1.0 +0.100 +0.2 % *\n"));
  EXPECT_THAT(text, ContainsRegex("  copies, ranks, launches +0.0 +47.400 +79.0 % *\n"));
}

TEST(StepBenchText, WithoutAPeakThereIsNoUtilization) {
  StepBenchReport report = example();
  report.peak_flops_per_second = 0;
  report.joules_global = 0;
  report.operations.clear();
  const std::string text = report_of(report).text();
  EXPECT_THAT(text, HasSubstr("utilization (MFU)       unknown; give --peak-tflops\n"));
  EXPECT_THAT(text, Not(HasSubstr("operations")));
  EXPECT_THAT(text, Not(HasSubstr("energy")));
}

TEST(StepBenchJson, HasTheSameFigures) {
  const ReportJson report = report_of(example()).json();
  EXPECT_EQ(report["step_ms"]["median"], 50.0);
  EXPECT_EQ(report["step_ms"]["all"].size(), 5U);
  EXPECT_EQ(report["ranks"], 8);
  EXPECT_EQ(report["gelu"], "erf");
  EXPECT_DOUBLE_EQ(report["utilization"], 200.0 / 790.0);
  EXPECT_EQ(report["joules_per_step"], 288.0);
  EXPECT_EQ(report["phase_ms"]["communication"], 3.0);
  EXPECT_EQ(report["peak_memory_bytes"], int64_t{40} << 30);
  ASSERT_EQ(report["operations"].size(), 3U);
  EXPECT_EQ(report["operations"][0]["name"], "linear_fwd 4x5x6");
  EXPECT_EQ(report["operations"][1]["bytes_per_step"], 1e9);
}

}  // namespace
}  // namespace bertha
