#include "harness/report/console.h"

#include <gtest/gtest.h>

#include <limits>

#include "harness/report/summary.h"
#include "harness/report/text_format.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

RunFacts gpu_facts() {
  RunFacts facts = test::test_facts();
  facts.peak_flops_per_second = 10e12;
  return facts;
}

StepRecord cpu_step(int64_t step) {
  StepRecord record = test::test_step(step);
  record.skipped_steps = 0;
  record.ranks.power_watts = 0;
  record.ranks.lowest_sm_mhz = 0;
  return record;
}

TEST(Console, AStepIsOneReadableLine) {
  EXPECT_EQ(
      step_line(cpu_step(120), test::test_facts(), 160),
      "step   120/6,700  mlm loss -1.750  accuracy 1.200  nsp loss 0.750  learning rate 2.3e-4  "
      "norm  0.93   62 ms  6.27k seq/s  1.50M tok/s  end  3m31s");
}

TEST(Console, AWideTerminalHasWholeWordsAndAllFields) {
  EXPECT_EQ(
      step_line(test::test_step(7), gpu_facts(), 400),
      "step     7/6,700  mlm loss  9.550  accuracy 0.070  nsp loss 0.750  "
      "learning rate 3.4e-4  gradient norm  0.93  skipped 2   62 ms/step  (data 0.2, forward "
      " 18, backward  35, communication 4.5, optimizer 3.1)  6.27k sequences/s  1.50M tokens/s  "
      "MFU 50%  5.20k watts  1755 MHz  memory 64.0 GiB  end in  3m31s");
}

TEST(Console, ANarrowTerminalHasTheMostImportantFields) {
  EXPECT_EQ(step_line(test::test_step(7), gpu_facts(), 80),
            "step     7/6,700  mlm loss  9.550  acc 0.070  6.27k seq/s  end  3m31s");
}

TEST(Console, FieldsStandBelowThoseOfTheLineBefore) {
  for (const int64_t columns : {80, 120, 160, 240}) {
    StepRecord early = cpu_step(1), late = cpu_step(6700);
    late.step_ms = 613;
    late.gradient_norm = 12.3;
    late.mlm_accuracy = 0.5;
    late.seqs_per_second = 512;
    late.eta_seconds = 45;
    early.mlm_loss = 10.123;
    late.mlm_loss = 9.5;
    late.learning_rate = 1e-5;
    const std::string one = step_line(early, test::test_facts(), columns);
    const std::string other = step_line(late, test::test_facts(), columns);
    EXPECT_EQ(one.size(), other.size()) << one << "\n" << other;
    for (const char* word : {"acc", "seq", "end"}) EXPECT_EQ(one.find(word), other.find(word));
  }
}

TEST(Console, SkippedStepsShowOnlyWhenThereAreAny) {
  EXPECT_THAT(step_line(test::test_step(1), test::test_facts(), 160), HasSubstr("skip 2  "));
  EXPECT_THAT(step_line(cpu_step(1), test::test_facts(), 160), Not(HasSubstr("skip")));
}

TEST(Console, UtilizationShowsOnlyWhereThePeakIsKnown) {
  EXPECT_THAT(step_line(cpu_step(1), test::test_facts(), 160), Not(HasSubstr("MFU")));
  EXPECT_THAT(step_line(cpu_step(1), gpu_facts(), 160), HasSubstr("MFU 50%"));
}

StepRecord widest_step() {
  StepRecord record = test::test_step(99'999);
  record.samples = 999'999'999;
  record.mlm_loss = 11.123;
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

TEST(Console, ALineFitsFrom80ColumnsUpward) {
  RunFacts facts = gpu_facts();
  facts.max_steps = 99'999;
  StepRecord record = widest_step();
  for (const int64_t columns : {80, 100, 130, 160, 200, 300}) {
    const std::string line = step_line(record, facts, columns);
    EXPECT_LE(line.size() + 9, static_cast<size_t>(columns)) << line;
    EXPECT_THAT(line, EndsWith("23h59m"));
  }
}

TEST(Console, AnEvaluationNamesTheTargetWhenThereIsOne) {
  EXPECT_EQ(eval_line(test::test_eval(335, 0.56125), 0.72, 160),
            "eval  step 335  accuracy 0.5613 (target 0.7200)  mlm loss 2.125  nsp accuracy 0.875  "
            "2.5 s");
  EXPECT_EQ(eval_line(test::test_eval(335, 0.56125), 0.72, 80),
            "eval  step 335  acc 0.5613 (target 0.7200)  mlm 2.125  nsp acc 0.875");
  EXPECT_THAT(eval_line(test::test_eval(335, 0.5), 0, 160), Not(HasSubstr("target")));
}

TEST(Console, AHeadThatIsNotTrainedHasNoFigures) {
  const StepRecord step = test::without_next_sentence(cpu_step(120));
  EXPECT_EQ(step_line(step, test::test_facts(), 160),
            "step   120/6,700  mlm loss -1.750  accuracy 1.200  learning rate 2.3e-4  "
            "gradient norm  0.93   62 ms/step  6.27k sequences/s  1.50M tok/s  end  3m31s");
  EXPECT_EQ(step_line(step, test::test_facts(), 80),
            "step   120/6,700  mlm loss -1.750  acc 1.200  6.27k seq/s  end  3m31s");
  const EvalRecord eval = test::without_next_sentence(test::test_eval(335, 0.56125));
  EXPECT_EQ(eval_line(eval, 0.72, 80),
            "eval  step 335  accuracy 0.5613 (target 0.7200)  mlm loss 2.125  2.5 s");
}

TEST(Console, TheStartLineSaysWhatRunsUntilWhen) {
  Config config = test::test_config();
  RunFacts facts = test::test_facts();
  facts.first_step = 100;
  EXPECT_EQ(start_line(config, facts),
            "bert-tiny, 340M parameters, on cpu, 8 ranks; 448 sequences per step, from step 100 "
            "to accuracy 0.7200 or step 6,700");
  config.train.target_accuracy = 0;
  facts.world_size = 1;
  facts.kernels.attention = "persistent forward, grouped backward";
  facts.kernels.gelu_gemms = "own from 1921 tokens";
  EXPECT_THAT(start_line(config, facts),
              HasSubstr("1 rank, attention persistent forward, grouped backward, "
                        "GELU GEMMs own from 1921 tokens; 448 "));
  EXPECT_THAT(start_line(config, facts), EndsWith("from step 100 to step 6,700"));
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
            "  steps         1,200\n"
            "  samples       76,800\n"
            "  time          3m21s\n"
            "  throughput    382 sequences/s, 20.5k tokens/s\n"
            "  logs          runs/x/metrics.jsonl, runs/x/mllog\n"
            "  checkpoint    runs/x/ckpt/step_00001200\n"
            "  next          bertha eval --config runs/x/resolved.resume1.yaml --checkpoint "
            "runs/x/ckpt/step_00001200\n");
}

TEST(Summary, SaysWhereAConstantAnswerReachesTheTarget) {
  const std::string shown = "(always the most frequent token); the target is not above it";
  RunSummary run = summary();
  for (const double target : {0.05, 0.0625}) {
    run.target_accuracy = target;
    EXPECT_THAT(summary_text(run), HasSubstr(shown)) << target;
  }
  for (const double target : {0.0626, 0.0}) {
    run.target_accuracy = target;
    EXPECT_THAT(summary_text(run), Not(HasSubstr(shown))) << target;
  }
}

TEST(Summary, TellsOfTheEnergyWhereItIsKnown) {
  EXPECT_THAT(summary_text(summary()), Not(HasSubstr("energy")));
  RunSummary run = summary();
  run.joules_per_sample = 16.25;
  EXPECT_THAT(summary_text(run),
              HasSubstr("  energy        1,248,000 J, 16.2 J per sample  (all GPUs, from the first "
                        "step to the end, evaluations included)\n"));
}

/// The last line, after a missed target.
std::string next_of(RunSummary run) {
  run.accuracy = 0.2499;
  const std::string text = summary_text(run);
  const size_t at = text.find("  next          bertha ");
  return at == std::string::npos ? "" : text.substr(at + 23);
}

TEST(Summary, QuotesThePathsOfTheNextCommandForAShell) {
  RunSummary run = summary();
  run.config = "my runs/resolved.yaml";
  run.checkpoint = "it's $here";
  EXPECT_THAT(summary_text(run), HasSubstr("bertha eval --config 'my runs/resolved.yaml' "
                                           "--checkpoint 'it'\\''s $here'\n"));
  run.run_dir = "my runs";
  run.max_steps = run.schedule_steps = 1200;
  EXPECT_THAT(next_of(run), HasSubstr(" --output-dir 'my runs-2400-steps' "));
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
  EXPECT_THAT(next_of(run), StartsWith("eval "));
  run.checkpoint = "";
  EXPECT_EQ(next_of(run), "");
}

TEST(Summary, SaysWhatIsMissing) {
  RunSummary run = summary();
  run.accuracy = 0.2499;
  run.checkpoint = "";
  EXPECT_FALSE(target_reached(run));
  EXPECT_THAT(summary_text(run), HasSubstr("0.2499  (target missed)"));
  EXPECT_THAT(summary_text(run), HasSubstr("checkpoint    none"));
  run.accuracy.reset();
  EXPECT_THAT(summary_text(run), HasSubstr("never evaluated  (target missed)"));
  EXPECT_FALSE(target_reached(run));
  run.target_accuracy = 0;
  EXPECT_THAT(summary_text(run), testing::StartsWith("\nResult\n  accuracy      never evaluated\n"
                                                     "  guessing      0.0625  (always"));
}

TEST(Summary, ExactlyTheTargetIsReached) {
  RunSummary run = summary();
  run.accuracy = run.target_accuracy;
  EXPECT_TRUE(target_reached(run));
}

TEST(TextFormat, LongLinesAreBrokenAtBlanks) {
  EXPECT_EQ(wrapped_text("as it is\n  and  this\n", 11), "as it is\n  and  this\n");
  EXPECT_EQ(wrapped_text("found one, want another", 12), "found one,\n  want\n  another");
  EXPECT_EQ(wrapped_text("errors:\n  a.yaml: no such key", 16),
            "errors:\n  a.yaml: no\n    such key");
  EXPECT_EQ(wrapped_text("  name    a long value of", 20), "  name    a long\n          value of");
  // A second column that begins too far right would leave no room.
  EXPECT_EQ(wrapped_text("  a long name    value", 16), "  a long name\n    value");
  EXPECT_EQ(wrapped_text("saved /a/path/that/is/long now", 12),
            "saved\n  /a/path/that/is/long\n  now");
  EXPECT_EQ(wrapped_text("\u00b5s \u00b5s \u00b5s", 8), "\u00b5s \u00b5s \u00b5s");
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
  EXPECT_EQ(fixed_text(-123'456'789'012'345.5, 1), "-123456789012345.5");
  EXPECT_EQ(fixed_text(1e300, 0), "1e+300");
  EXPECT_EQ(scaled_text(std::numeric_limits<double>::infinity()), "infT");
}

}  // namespace
}  // namespace bertha
