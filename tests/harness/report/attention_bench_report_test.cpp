#include "harness/report/attention_bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace bertha {
namespace {

using testing::HasSubstr;
using testing::Not;

AttentionBenchReport example() {
  return {.model = "large",
          .device = "a device",
          .precision = "bf16",
          .date = "2026-11-21",
          .chosen = "grouped",
          .notes = {"persistent is not measured: it is not there"},
          .heads = 16,
          .head_size = 64,
          .peak_flops_per_second = 800e12,
          .peak_is_given = false,
          .mixes = {{.name = "all 512", .lengths = {512, 512}, .token_rows = 1280}},
          .rows = {{.mix = "all 512",
                    .dropout = 0.1,
                    .is_backward = false,
                    .kernels = "grouped",
                    .times_us = {100, 250, 200, 210, 190},
                    .flops = 40e9,
                    .error = 0.5,
                    .worst = "out"},
                   {.mix = "all 512",
                    .dropout = 0,
                    .is_backward = true,
                    .kernels = "persistent",
                    .times_us = {400},
                    .flops = 80e9,
                    .error = 0.25,
                    .worst = "dqkv"}},
          .timelines = {{.mix = "all 512",
                         .dropout = 0.1,
                         .is_backward = false,
                         .groups = {{.span = {.lane = 0,
                                              .num_seqs = 3,
                                              .longest_seq_tokens = 512,
                                              .begin_us = 0,
                                              .end_us = 60},
                                     .alone_us = 50},
                                    {.span = {.lane = 1,
                                              .num_seqs = 20,
                                              .longest_seq_tokens = 128,
                                              .begin_us = 30,
                                              .end_us = 120},
                                     .alone_us = 81.25}}}}};
}

TEST(AttentionBenchText, HasARowForEveryDirectionAndKernels) {
  const std::string text = attention_bench_text(example());
  for (const char* const line : {
           "attention of large, bf16, 16 heads of 64, a device, 2026-11-21\n",
           "the configuration takes grouped\npersistent is not measured: it is not there\n",
           "all 512          1280         2      0.10  forward    grouped         0.500     200.0  "
           "   248.4     200.0      25.0\n",
           "all 512          1280         2      0.00  backward   persistent      0.250     400.0  "
           "   400.0     200.0      25.0\n",
           "peak: a large product, measured, 800.0 TFLOP/s\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("WRONG")));
}

TEST(AttentionBenchText, AWrongResultIsNamed) {
  AttentionBenchReport report = example();
  EXPECT_TRUE(all_verified(report));
  report.rows[1].error = 1.5;
  EXPECT_FALSE(all_verified(report));
  EXPECT_THAT(attention_bench_text(report), HasSubstr("WRONG: dqkv\n"));
}

TEST(AttentionBenchText, OfOneKindOfKernelsThereIsNoChoiceToName) {
  AttentionBenchReport report = example();
  report.chosen = "";
  report.peak_is_given = true;
  const std::string text = attention_bench_text(report);
  EXPECT_THAT(text, Not(HasSubstr("the configuration takes")));
  EXPECT_THAT(text, HasSubstr("peak: a large product, given, 800.0"));
}

TEST(AttentionBenchText, EachDirectionHasItsKernels) {
  EXPECT_EQ(kernels_of("grouped", false), "grouped");
  EXPECT_EQ(kernels_of("persistent", true), "persistent");
  EXPECT_EQ(kernels_of("grouped forward, persistent backward", false), "grouped");
  EXPECT_EQ(kernels_of("grouped forward, persistent backward", true), "persistent");
}

TEST(AttentionLanesText, ShowsWhenEachGroupRanBesideItsTimeAlone) {
  const std::string text = attention_lanes_text(example().timelines);
  EXPECT_THAT(text, HasSubstr("lanes of the grouped kernels, all 512, dropout 0.10, forward: "
                              "120.0 us; each group by itself, summed: 131.2 us\n"));
  const auto bar = [](size_t before, size_t length) {
    return "|" + std::string(before, ' ') + std::string(length, '=') +
           std::string(60 - before - length, ' ') + "|\n";
  };
  EXPECT_THAT(text, HasSubstr("         0         3       512      50.0       0.0      60.0 " +
                              bar(0, 30)));
  EXPECT_THAT(text, HasSubstr("         1        20       128      81.2      30.0     120.0 " +
                              bar(15, 45)));
  EXPECT_EQ(attention_lanes_text({}), "");
}

TEST(AttentionBenchJson, HasTheLengthsAndTheFiguresOfEachRow) {
  const auto json = nlohmann::json::parse(attention_bench_json(example()));
  EXPECT_EQ(json["chosen"], "grouped");
  EXPECT_EQ(json["heads"], 16);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["mixes"][0]["lengths"], (std::vector<int>{512, 512}));
  EXPECT_EQ(json["mixes"][0]["token_rows"], 1280);
  EXPECT_EQ(json["rows"][0]["direction"], "forward");
  EXPECT_EQ(json["rows"][0]["median_us"], 200);
  EXPECT_DOUBLE_EQ(json["rows"][0]["flops_per_second"], 200e12);
  EXPECT_DOUBLE_EQ(json["rows"][1]["share_of_peak"], 0.25);
  EXPECT_EQ(json["rows"][1]["kernels"], "persistent");
  EXPECT_EQ(json["rows"][1]["direction"], "backward");
  EXPECT_EQ(json["timelines"][0]["groups"][1]["begin_us"], 30);
  EXPECT_EQ(json["timelines"][0]["groups"][1]["alone_us"], 81.25);
}

}  // namespace
}  // namespace bertha
