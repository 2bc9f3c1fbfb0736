#include "harness/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "harness/report/summary.h"
#include "harness/report/text_format.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Console, AStepIsOneReadableLine) {
  StepRecord record = test::test_step(120);
  record.loss_scale = 1;
  record.skipped_steps = 0;
  EXPECT_EQ(step_line(record, test::test_facts()),
            "step 120/6700 smp 53.8k loss -1.000 mlm 1.200 lr 2.3e-4 gn 0.93 | 62 ms "
            "(data 0.2 fwd 18 bwd 35 comm 4.5 opt 3.1) 6.27k seq/s 1.50M tok/s ETA 3m31s");
}

TEST(Console, SkippedStepsShowOnlyWhenThereAreAny) {
  StepRecord record = test::test_step(1);
  EXPECT_THAT(step_line(record, test::test_facts()), HasSubstr(" skip 2 |"));
  record.skipped_steps = 0;
  EXPECT_THAT(step_line(record, test::test_facts()), Not(HasSubstr("skip")));
}

TEST(Console, UtilizationShowsOnlyWhereThePeakIsKnown) {
  RunFacts facts = test::test_facts();
  EXPECT_THAT(step_line(test::test_step(1), facts), Not(HasSubstr("MFU")));
  facts.peak_flops_per_second = 10e12;
  EXPECT_THAT(step_line(test::test_step(1), facts), HasSubstr(" MFU 50% ETA"));
}

StepRecord widest_step() {
  StepRecord record = test::test_step(99'999);
  record.samples = 999'999'999;
  record.loss = 11.123;
  record.mlm_accuracy = 0.123;
  record.learning_rate = 1.234e-10;
  record.gradient_norm = 123456;
  record.skipped_steps = 0;
  for (double StepRecord::*time :
       {&StepRecord::step_ms, &StepRecord::data_wait_ms, &StepRecord::forward_ms,
        &StepRecord::backward_ms, &StepRecord::communication_ms, &StepRecord::optimizer_ms}) {
    record.*time = 9999;
  }
  record.seqs_per_second = 99'912;
  record.tokens_per_second = 99.9e6;
  record.flops_per_second = 4e15;
  record.eta_seconds = 86399;
  return record;
}

TEST(Console, ALineFits160ColumnsAndLosesOnlyWhatMetricsHold) {
  RunFacts facts = test::test_facts();
  facts.max_steps = 99'999;
  facts.peak_flops_per_second = 1e16;
  StepRecord record = widest_step();
  for (const int64_t skipped : {0, 20}) {
    record.skipped_steps = skipped;
    const std::string line = step_line(record, facts);
    EXPECT_LE(line.size(), 160u) << line;
    EXPECT_THAT(line, testing::AllOf(HasSubstr("9999 ms"), HasSubstr("99.9k seq/s"),
                                     testing::EndsWith(" ETA 23h59m")));
  }
}

TEST(Console, AnEvaluationNamesTheTargetWhenThereIsOne) {
  EXPECT_EQ(eval_line(test::test_eval(335, 0.56125), 0.72),
            "eval step 335 samples 150k mlm accuracy 0.5613 (target 0.7200) loss 2.125 nsp 0.875 "
            "| 2.5 s");
  EXPECT_THAT(eval_line(test::test_eval(335, 0.5), 0), Not(HasSubstr("target")));
}

TEST(Console, TheStartLineSaysWhatRunsUntilWhen) {
  Config config = test::test_config();
  RunFacts facts = test::test_facts();
  facts.first_step = 100;
  EXPECT_EQ(start_line(config, facts),
            "bert-tiny, 340M parameters, on cpu, 8 ranks; 448 sequences per step, from step 100 "
            "to accuracy 0.7200 or step 6700");
  config.train.target_accuracy = 0;
  facts.world_size = 1;
  facts.attention = "persistent forward, grouped backward";
  facts.gelu_gemms = "own from 1921 tokens";
  EXPECT_THAT(start_line(config, facts),
              HasSubstr("1 rank, attention persistent forward, grouped backward, "
                        "GELU GEMMs own from 1921 tokens; 448 "));
  EXPECT_THAT(start_line(config, facts), testing::EndsWith("from step 100 to step 6700"));
}

RunSummary summary() {
  return {.target_accuracy = 0.25,
          .accuracy = 0.2625,
          .baseline_accuracy = 0.0625,
          .steps = 1200,
          .samples = 76800,
          .seconds = 201,
          .seqs_per_second = 382,
          .tokens_per_second = 20480,
          .run_dir = "runs/x",
          .config = "runs/x/resolved.resume1.yaml",
          .checkpoint = "runs/x/ckpt/step_00001200"};
}

TEST(Summary, NamesTargetResultSpeedAndPlaces) {
  EXPECT_EQ(summary_text(summary()),
            "\nResult\n"
            "  target        0.2500 masked-LM accuracy\n"
            "  reached       0.2625  (target reached)\n"
            "  baseline      0.0625  (always the most frequent token)\n"
            "  steps         1200\n"
            "  samples       76800\n"
            "  time          3m21s\n"
            "  throughput    382 sequences/s, 20.5k tokens/s\n"
            "  logs          runs/x/metrics.jsonl, runs/x/mllog\n"
            "  plots         runs/x/plots\n"
            "  checkpoint    runs/x/ckpt/step_00001200\n"
            "  next          bertha eval --config runs/x/resolved.resume1.yaml --checkpoint "
            "runs/x/ckpt/step_00001200\n");
}

/// The last line, after a missed target.
std::string next_of(RunSummary run) {
  run.accuracy = 0.2499;
  const std::string text = summary_text(run);
  const size_t at = text.find("  next          bertha ");
  return at == std::string::npos ? "" : text.substr(at + 23);
}

TEST(Summary, WhileTheScheduleHasARateLeftTheNextCommandGoesOn) {
  RunSummary run = summary();
  run.max_steps = 1200;
  run.schedule_steps = 2000;
  run.has_schedule_steps = true;
  const std::string words =
      "train --config runs/x/resolved.resume1.yaml --output-dir runs/x --resume auto";
  EXPECT_EQ(next_of(run), words + " --max-steps 2000\n");
  run.schedule_steps = 9000;
  EXPECT_EQ(next_of(run), words + " --max-steps 2400\n");
  // What ended it was the number of samples: the last step, and with it the schedule, stay.
  run.max_samples = 76800;
  run.max_steps = run.schedule_steps = 6000;
  run.has_schedule_steps = false;
  EXPECT_EQ(next_of(run), words + " --max-samples 153600\n");
}

TEST(Summary, AfterTheEndOfTheScheduleTheNextCommandIsALongerRunOfItsOwn) {
  RunSummary run = summary();
  run.max_steps = run.schedule_steps = 1200;
  const std::string words =
      "train --config runs/x/resolved.resume1.yaml --output-dir runs/x-2400-steps --resume auto "
      "--max-steps 2400";
  EXPECT_EQ(next_of(run), words + "\n");
  run.has_schedule_steps = true;
  EXPECT_EQ(next_of(run), words + " --set optimizer.schedule_steps=2400\n");
}

TEST(Summary, WithoutAMissedTargetTheNextCommandEvaluates) {
  RunSummary run = summary();
  run.target_accuracy = 0;  // nothing was missed
  EXPECT_THAT(next_of(run), testing::StartsWith("eval "));
  run.checkpoint = "";
  EXPECT_EQ(next_of(run), "");
}

TEST(Summary, SaysWhatIsMissing) {
  RunSummary run = summary();
  run.accuracy = 0.2499;
  run.checkpoint = "";
  run.plots = false;
  EXPECT_FALSE(target_reached(run));
  EXPECT_THAT(summary_text(run), HasSubstr("0.2499  (target missed)"));
  EXPECT_THAT(summary_text(run), HasSubstr("checkpoint    none"));
  EXPECT_THAT(summary_text(run), Not(HasSubstr("plots")));
  run.accuracy.reset();
  EXPECT_THAT(summary_text(run), HasSubstr("never evaluated  (target missed)"));
  EXPECT_FALSE(target_reached(run));
  run.target_accuracy = 0;
  EXPECT_THAT(summary_text(run), HasSubstr("target        none"));
  EXPECT_THAT(summary_text(run), HasSubstr("reached       never evaluated\n"));
}

TEST(Summary, ExactlyTheTargetIsReached) {
  RunSummary run = summary();
  run.accuracy = run.target_accuracy;
  EXPECT_TRUE(target_reached(run));
}

TEST(TextFormat, ScaledNumbersKeepThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(scaled_text(0), "0");
  EXPECT_EQ(scaled_text(512), "512");
  EXPECT_EQ(scaled_text(999), "999");
  EXPECT_EQ(scaled_text(999.6), "1.00k");
  EXPECT_EQ(scaled_text(1000), "1.00k");
  EXPECT_EQ(scaled_text(9994), "9.99k");
  EXPECT_EQ(scaled_text(9996), "10.0k");
  EXPECT_EQ(scaled_text(46080), "46.1k");
  EXPECT_EQ(scaled_text(999'499), "999k");
  EXPECT_EQ(scaled_text(999'500), "1.00M");
  EXPECT_EQ(scaled_text(-2500), "-2.50k");
  EXPECT_EQ(scaled_text(0.25), "0.25");
  EXPECT_EQ(scaled_text(3e15), "3000T");
}

TEST(TextFormat, ExponentsAreShort) {
  EXPECT_EQ(exponent_text(4.26e-4), "4.3e-4");
  EXPECT_EQ(exponent_text(0), "0.0e0");
  EXPECT_EQ(exponent_text(-1.5e12), "-1.5e12");
  EXPECT_EQ(exponent_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(TextFormat, DurationsHaveTwoUnits) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(211), "3m31s");
  EXPECT_EQ(duration_text(7500), "2h05m");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(duration_text(1e300), ">1000d");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(TextFormat, MillisecondsHaveADecimalBelowTen) {
  EXPECT_EQ(ms_text(0.26), "0.3");
  EXPECT_EQ(ms_text(9.94), "9.9");
  EXPECT_EQ(ms_text(9.96), "10");
  EXPECT_EQ(ms_text(613.4), "613");
}

TEST(TextFormat, ValuesThatAreNotFiniteAreNamed) {
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::quiet_NaN(), 3), "nan");
  EXPECT_EQ(fixed_text(-std::numeric_limits<double>::infinity(), 3), "-inf");
  EXPECT_EQ(scaled_text(std::numeric_limits<double>::infinity()), "infT");
}

}  // namespace
}  // namespace bertha
