#include "harness/plan/speed_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/files/text_file.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

using testing::HasSubstr;

SpeedRequest request_for(const std::string& recipe, int64_t ranks,
                         const std::vector<std::string>& settings = {}) {
  const std::string path = std::string(kSourceDir) + "/configs/" + recipe + ".yaml";
  SpeedRequest request{.config = test::load_settings({path}, settings).config,
                       .cluster = {.ranks = ranks, .network = parse_network("ib-ndr400x8")},
                       .lengths = published_lengths()};
  return request;
}

/// As `bertha bench step --tokens-per-rank` runs it.
SpeedRequest bench_request(int64_t ranks, int64_t tokens) {
  SpeedRequest request = request_for("models/large", ranks);
  request.tokens_per_rank = tokens;
  return request;
}

const StepPart& part(const StepTime& step, const std::string& name) {
  for (const StepPart& part : step.parts) {
    if (part.name == name) return part;
  }
  throw Error(ExitCode::kInternal, "no part " + name);
}

TEST(PublishedLengths, HaveTheMeansOfTheSource) {
  const LengthMeans means = means_of(published_lengths(), 512);
  EXPECT_NEAR(means.tokens, 255.83, 0.1);
  EXPECT_NEAR(means.squared_tokens, 98'826, 100);
  EXPECT_LT(means_of(published_lengths(), 128).tokens, 128);
}

TEST(TokenBalance, IsAsEvenAsTrainingMakesIt) {
  SyntheticSteps steps{.lengths = published_lengths(), .global_batch_seqs = 768, .num_ranks = 8};
  const TokenBalance even = balance_of(steps, 256);
  EXPECT_NEAR(even.mean_tokens, 96 * 255.8, 300);
  EXPECT_GE(even.most_tokens, even.mean_tokens);
  EXPECT_LT(even.most_tokens, 1.005 * even.mean_tokens);
  EXPECT_GE(even.most_rows, even.most_tokens);
  EXPECT_LE(even.most_rows, even.most_tokens + 256);
  steps.exchange = ExchangePadding::kOff;
  EXPECT_GT(balance_of(steps, 256).most_tokens, 1.03 * even.mean_tokens);
  const TokenBalance few = balance_of(
      {.lengths = published_lengths(), .global_batch_seqs = 13'888, .num_ranks = 3472}, 256);
  EXPECT_GT(few.most_tokens, 1.05 * few.mean_tokens) << "four sequences even out badly";
}

// BERT-large on one H200: tokens, milliseconds (kernels/measured/scale.md).
struct MeasuredStep {
  int64_t tokens;
  double ms;
  double fp8_ms;
};
constexpr MeasuredStep kMeasuredSteps[] = {
    {1024, 9.1, 9.2}, {2048, 12.0, 11.4}, {4096, 18.9, 15.8}, {24576, 89.2, 65.0}};

double step_ms(const SpeedRequest& request, GemmPrecision precision) {
  SpeedRequest one = request;
  one.precision = precision;
  return predict_speed(one).step.step_ms;
}

TEST(SpeedPlan, StepsOfOneGpuAreThoseMeasured) {
  // They are what the model is made of: only rounding of its constants is between.
  constexpr double kTolerance = 0.002;
  for (const auto& [tokens, ms, fp8_ms] : kMeasuredSteps) {
    const SpeedRequest request = bench_request(1, tokens);
    EXPECT_NEAR(step_ms(request, GemmPrecision::k16Bit), ms, kTolerance * ms) << tokens;
    EXPECT_NEAR(step_ms(request, GemmPrecision::kFp8), fp8_ms, kTolerance * fp8_ms) << tokens;
  }
  // Joules per step by the GPU's counter (kernels/measured/fp8.md).
  EXPECT_NEAR(1e-3 * 65.0 * kWattsAtPowerLimit, 45, 0.05 * 45);
  EXPECT_NEAR(1e-3 * 89.2 * kWattsAtPowerLimit, 63, 0.05 * 63);
}

// Steps of 2 and 4 GPUs of one machine, on another than the model's (kernels/measured/step.md).
// GPUs of one kind differ by as much as this tolerance.
constexpr double kMeasuredTolerance = 0.02;
struct MeasuredRanks {
  int64_t ranks;
  bool copies;
  double ms;
  double fp8_ms;
};
constexpr MeasuredRanks kMeasuredRanks[] = {
    {2, true, 90.4, 64.9}, {4, true, 90.2, 65.8}, {4, false, 92.7, 66.5}};

TEST(SpeedPlan, StepsOfSeveralGpusAreThoseMeasured) {
  for (const auto& [ranks, copies, ms, fp8_ms] : kMeasuredRanks) {
    SpeedRequest request = bench_request(ranks, 24576);
    request.cluster.copies = copies;
    EXPECT_NEAR(step_ms(request, GemmPrecision::k16Bit), ms, kMeasuredTolerance * ms) << ranks;
    EXPECT_NEAR(step_ms(request, GemmPrecision::kFp8), fp8_ms, kMeasuredTolerance * fp8_ms)
        << ranks;
  }
}

struct Case {
  std::string what;
  SpeedRequest request;
  bool fp8 = false;
  double seen_ms = 0;
  double seen_seconds = 0;  // of a run; 0 = none
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const SpeedRequest& request, double ms, double fp8_ms) {
    all.push_back({.what = "measured", .request = request, .seen_ms = ms});
    all.push_back({.what = "measured", .request = request, .fp8 = true, .seen_ms = fp8_ms});
  };
  for (const auto& [tokens, ms, fp8_ms] : kMeasuredSteps) add(bench_request(1, tokens), ms, fp8_ms);
  for (const auto& [ranks, copies, ms, fp8_ms] : kMeasuredRanks) {
    if (copies) add(bench_request(ranks, 24576), ms, fp8_ms);
  }
  all.push_back({.what = "NVIDIA v4.0, H200",
                 .request = request_for("mlperf_closed_8gpu_768", 8),
                 .fp8 = true,
                 .seen_ms = 90.0,
                 .seen_seconds = 312.7});
  all.push_back({.what = "NVIDIA v4.0, H100",
                 .request = request_for("mlperf_closed_64gpu_4608", 64),
                 .fp8 = true,
                 .seen_ms = 81,
                 .seen_seconds = 53.9});
  all.push_back({.what = "NVIDIA v3.0, H100",
                 .request = request_for("mlperf_closed_512gpu_3072", 512),
                 .seen_ms = 21.2,
                 .seen_seconds = 20.1});
  all.push_back({.what = "NVIDIA v4.0, H100",
                 .request = request_for("mlperf_closed_3472gpu_13888", 3472),
                 .seen_ms = 17.3,
                 .seen_seconds = 7.16});
  return all;
}

std::string row_of(Case one) {
  one.request.precision = one.fp8 ? GemmPrecision::kFp8 : GemmPrecision::k16Bit;
  const SpeedPlan plan = predict_speed(one.request);
  const StepTime& step = plan.step;
  double exchange = 0;
  for (const char* const name :
       {"gradient sums", "weight gathers", "slowed by them", "norms over ranks"}) {
    if (one.request.cluster.ranks > 1) exchange += part(step, name).exposed_ms();
  }
  const auto tokens = static_cast<int64_t>(step.tokens_per_rank);
  const double waits = part(step, "uneven lengths").ms + part(step, "slowest GPU").ms;
  const bool has_run = one.seen_seconds > 0;
  return concat(
      "| ", one.request.cluster.ranks, " | ", one.what, " | ", one.fp8 ? "fp8" : "16 bits", " | ",
      grouped_text(tokens), " | ", fixed_text(one.seen_ms, 1), " | ", fixed_text(step.step_ms, 1),
      " | ", fixed_text(part(step, "forward and backward").ms, 1), " | ", fixed_text(waits, 1),
      " | ", fixed_text(exchange, 1), " | ", has_run ? fixed_text(one.seen_seconds, 1) : "", " | ",
      has_run ? fixed_text(plan.run.seconds, 1) : "", " |");
}

TEST(SpeedPlan, TheTableOfTheDocumentIsTheModels) {
  const std::string document =
      read_text_file(std::string(kSourceDir) + "/kernels/measured/scale.md");
  for (const Case& one : cases()) {
    const std::string row = row_of(one) + "\n";
    EXPECT_NE(document.find(row), std::string::npos) << "scale.md has no row " << row;
  }
}

TEST(SpeedPlan, MoreRanksDoNotComputeMore) {
  double compute = 1e9, lamb = 1e9, sequences = 0;
  for (const int64_t ranks : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    const StepTime step = predict_speed(request_for("mlperf_closed_512gpu_3072", ranks)).step;
    EXPECT_LT(part(step, "forward and backward").ms, compute) << ranks;
    EXPECT_LE(part(step, "LAMB").ms, lamb) << ranks;
    EXPECT_NEAR(part(step, "LAMB").ms, 3.28 / static_cast<double>(std::min<int64_t>(ranks, 8)),
                0.01);
    EXPECT_GT(step.seqs_per_second, sequences) << ranks;
    compute = part(step, "forward and backward").ms;
    lamb = part(step, "LAMB").ms;
    sequences = step.seqs_per_second;
    double sum = 0;
    for (const StepPart& one : step.parts) {
      EXPECT_GE(one.hidden_ms, 0) << one.name;
      EXPECT_LE(one.hidden_ms, one.ms) << one.name;
      sum += one.exposed_ms();
    }
    EXPECT_DOUBLE_EQ(step.step_ms, sum);
  }
}

TEST(SpeedPlan, MoreNodesAtTheSameWorkPerRankTakeLonger) {
  double before = 0;
  for (int64_t ranks = 1; ranks <= 4096; ranks *= 2) {
    SpeedRequest request = bench_request(ranks, 2048);
    const double step_ms = predict_speed(request).step.step_ms + lamb_ms(336e6) -
                           lamb_ms(336e6 / static_cast<double>(std::min<int64_t>(ranks, 8)));
    EXPECT_GT(step_ms, before) << ranks;
    before = step_ms;
  }
}

TEST(SpeedPlan, NamesWhatBoundsTheStep) {
  EXPECT_THAT(predict_speed(bench_request(1, 24576)).step.bounded_by, HasSubstr("power limit"));
  EXPECT_THAT(predict_speed(bench_request(8, 1024)).step.bounded_by, HasSubstr("latencies"));
  SpeedRequest slow = bench_request(64, 1024);
  slow.cluster.network = parse_network("1.4:25");
  EXPECT_THAT(predict_speed(slow).step.bounded_by,
              testing::MatchesRegex("[0-9]+ % exchange between GPUs, then [0-9]+ % forward.*"));
  SpeedRequest micro_batches = request_for("mlperf_closed_64gpu_4608", 64);
  const double whole = part(predict_speed(micro_batches).step, "forward and backward").ms;
  micro_batches.config.train.accumulation_steps = 9;
  EXPECT_GT(part(predict_speed(micro_batches).step, "forward and backward").ms, whole);
}

TEST(SpeedPlan, RunsToWhatTheReferenceNeedsOrToTheLastStep) {
  const SpeedPlan plan = predict_speed(request_for("mlperf_closed_64gpu_4608", 64));
  EXPECT_TRUE(plan.run.to_target);
  EXPECT_EQ(plan.run.samples, 2'798'080);
  EXPECT_EQ(plan.run.steps, 608);
  EXPECT_EQ(plan.run.evals, 13);
  EXPECT_NEAR(plan.run.seconds, 608 * 1e-3 * plan.step.step_ms + 13 * plan.run.eval_seconds, 1e-9);
  EXPECT_NEAR(plan.run.megajoules, 64 * 690e-6 * plan.run.seconds, 1e-9);
  const SpeedPlan shorter =
      predict_speed(request_for("mlperf_closed_64gpu_4608", 64, {"train.max_steps=600"}));
  EXPECT_FALSE(shorter.run.to_target) << "ends before the target";
  EXPECT_EQ(shorter.run.steps, 600);
  EXPECT_FALSE(predict_speed(request_for("medium_from_scratch", 1)).run.to_target);
}

TEST(SpeedPlan, EvaluationsTakeWhatTheyTook) {
  // 10,000 sequences on 2 GPUs, batches of 16: 1.94 s, copies and sums over ranks included.
  SpeedRequest request = request_for("mlperf_closed_8gpu_768", 2);
  EXPECT_NEAR(predict_speed(request).run.eval_seconds, 1.94, 0.2 * 1.94);
}

TEST(SpeedPlan, WantsWholeNodes) {
  EXPECT_THROW(predict_speed(bench_request(12, 1024)), Error);
  EXPECT_NO_THROW(predict_speed(bench_request(6, 1024)));
}

}  // namespace
}  // namespace bertha
