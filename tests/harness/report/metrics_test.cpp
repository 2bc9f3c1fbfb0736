#include "harness/report/metrics.h"
#include "data/files/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/files/text_file.h"
#include "kernels/base/error.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/captured_log.h"
#include "tests/support/error_of.h"

namespace bertha {
namespace {

using nlohmann::json;

TEST(Metrics, EveryLineIsOneObjectWithItsKind) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.run(test::test_config(), test::test_facts());
  file.step(test::test_step(7));
  file.eval(test::test_eval(7, 0.5));
  file.event("a \"quoted\"\nevent \xff");
  file.stop({.status = "success", .samples = 3136});
  std::vector<std::string> kinds;
  for (const std::string& line : test::lines_of(folder.path("m"))) {
    const json object = json::parse(line);
    EXPECT_GT(object.at("time_ms").get<int64_t>(), 1'600'000'000'000);
    kinds.push_back(object.at("kind"));
  }
  EXPECT_THAT(kinds, testing::ElementsAre("run", "step", "eval", "event", "stop"));
}

TEST(Metrics, AStepAndAnEvaluationComeBackAsTheyWereWritten) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.run(test::test_config(), test::test_facts());
  const StepRecord step = test::test_step(7);
  const EvalRecord eval = test::test_eval(7, 0.1 + 0.2);  // a value without a short decimal form
  file.step(step);
  file.eval(eval);

  const Metrics metrics = read_metrics(folder.path("m"));
  EXPECT_EQ(metrics.run.target_accuracy, 0.72);
  EXPECT_EQ(metrics.unreadable_lines, 0);
  ASSERT_EQ(metrics.steps.size(), 1u);
  const StepRecord& back = metrics.steps[0];
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.samples, 3136);
  for (double StepRecord::*field :
       {&StepRecord::loss, &StepRecord::mlm_loss, &StepRecord::mlm_accuracy,
        &StepRecord::learning_rate, &StepRecord::gradient_norm, &StepRecord::loss_scale,
        &StepRecord::step_ms, &StepRecord::data_wait_ms, &StepRecord::forward_ms,
        &StepRecord::backward_ms, &StepRecord::communication_ms, &StepRecord::optimizer_ms,
        &StepRecord::seqs_per_second, &StepRecord::tokens_per_second, &StepRecord::flops_per_second,
        &StepRecord::token_imbalance, &StepRecord::fp8_saturated}) {
    EXPECT_EQ(back.*field, step.*field);
  }
  ASSERT_EQ(metrics.evals.size(), 1u);
  EXPECT_EQ(metrics.evals[0].step, 7);
  EXPECT_EQ(metrics.evals[0].samples, 3136);
  for (double EvalRecord::*field :
       {&EvalRecord::mlm_accuracy, &EvalRecord::mlm_loss, &EvalRecord::seconds,
        &EvalRecord::seqs_per_second_since_last}) {
    EXPECT_EQ(metrics.evals[0].*field, eval.*field);
  }
  EXPECT_EQ(back.nsp_loss, 0.75);
  EXPECT_EQ(metrics.evals[0].nsp_accuracy, 0.875);
  EXPECT_EQ(json::parse(test::lines_of(folder.path("m"))[1]).at("skipped_steps"), 2);
  EXPECT_EQ(back.skipped_steps, 2);
  EXPECT_EQ(back.ranks.slowest, 5);
  EXPECT_EQ(back.ranks.slowest_compute_ms, 53.5);
  EXPECT_EQ(back.ranks.power_watts, 5200);
  EXPECT_EQ(back.memory_bytes, int64_t{64} << 30);
}

TEST(Metrics, ARunBegunAnewHasNoEvaluationOfTheEarlierOne) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  for (const int64_t step : {1, 4, 8}) file.step(test::test_step(step));
  for (const int64_t step : {4, 8}) file.eval(test::test_eval(step, 0.7));
  file.step(test::test_step(1));
  EXPECT_TRUE(read_metrics(folder.path("m")).evals.empty());
  file.step(test::test_step(10));
  file.eval(test::test_eval(10, 0.1));
  const Metrics metrics = read_metrics(folder.path("m"));
  ASSERT_EQ(metrics.evals.size(), 1u);
  EXPECT_EQ(metrics.evals.front().step, 10);
}

TEST(Metrics, FiguresOfAHeadThatIsNotTrainedAreNullAndComeBackAsNone) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.step(test::without_next_sentence(test::test_step(1)));
  file.eval(test::without_next_sentence(test::test_eval(1, 0.5)));
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  EXPECT_TRUE(json::parse(lines[0]).at("nsp_loss").is_null());
  EXPECT_TRUE(json::parse(lines[1]).at("nsp_accuracy").is_null());
  const Metrics metrics = read_metrics(folder.path("m"));
  EXPECT_EQ(metrics.steps[0].nsp_loss, std::nullopt);
  EXPECT_EQ(metrics.evals[0].nsp_accuracy, std::nullopt);
}

TEST(Metrics, TheEndIsThatOfTheNewestStart) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.run(test::test_config(), test::test_facts());
  file.event("saved");
  file.stop({.status = "aborted", .samples = 10, .exit_code = ExitCode::kRequeue});
  Metrics metrics = read_metrics(folder.path("m"));
  ASSERT_TRUE(metrics.stop.has_value());
  EXPECT_EQ(metrics.stop->status, "aborted");
  EXPECT_EQ(metrics.stop->exit_code, 75);
  EXPECT_EQ(metrics.events[0].text, "saved");
  EXPECT_GT(metrics.last_time_ms, 1'600'000'000'000);
  file.run(test::test_config(), test::test_facts());
  metrics = read_metrics(folder.path("m"));
  EXPECT_FALSE(metrics.stop.has_value());
  EXPECT_EQ(metrics.run.max_steps, 6700);
  EXPECT_EQ(metrics.run.world_size, 8);
}

TEST(Metrics, TheEndHasTheEnergyWhereItIsKnown) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.stop({.status = "success", .samples = 200, .joules = 5000});
  file.stop({.status = "success", .samples = 200});
  file.stop({.status = "aborted", .samples = 0, .joules = 5000});
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  EXPECT_EQ(json::parse(lines[0]).at("joules"), 5000);
  EXPECT_EQ(json::parse(lines[0]).at("joules_per_sample"), 25);
  EXPECT_FALSE(json::parse(lines[1]).contains("joules"));
  EXPECT_FALSE(json::parse(lines[2]).contains("joules_per_sample"));
}

TEST(Metrics, ALineUnderWayTellsNothingAndCostsNoWarning) {
  const TempFolder folder;
  MetricsFile(folder.path("m")).step(test::test_step(1));
  const CapturedLog log;
  std::ofstream(folder.path("m"), std::ios::app) << "{\"kind\":\"step\",\"st";
  MetricsFollower follower(folder.path("m"));
  EXPECT_EQ(follower.look().records, 1);
  EXPECT_EQ(follower.look().unreadable_lines, 0);
  EXPECT_TRUE(log.lines.empty());
}

TEST(Metrics, AFollowerReadsWhatWasAppended) {
  const TempFolder folder;
  const std::string path = folder.path("m");
  EXPECT_THROW(MetricsFollower(path).look(), Error);
  MetricsFile(path).step(test::test_step(1));
  MetricsFollower follower(path);
  EXPECT_EQ(follower.look().steps.size(), 1U);
  // What was read is not read again: a change of it goes unseen, and what is new does not.
  std::fstream(path, std::ios::in | std::ios::out).put('#');
  MetricsFile(path).step(test::test_step(2));
  EXPECT_EQ(follower.look().steps.size(), 2U);
  EXPECT_EQ(follower.look().records, 2);
  EXPECT_EQ(follower.look().unreadable_lines, 0);
}

TEST(Metrics, AFollowerBeginsAnewWithANewFile) {
  const TempFolder folder;
  const std::string path = folder.path("m");
  MetricsFile(path).step(test::test_step(1));
  MetricsFollower follower(path);
  EXPECT_EQ(follower.look().records, 1);
  MetricsFile(folder.path("next")).step(test::test_step(7));
  std::filesystem::rename(folder.path("next"), path);
  EXPECT_EQ(follower.look().steps.back().step, 7);
  EXPECT_EQ(follower.look().records, 1);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(follower.look().records, 0);
}

TEST(Metrics, ALineWithANumberThatIsNotWholeIsNoRecord) {
  for (const char* parameters : {"1e300", "-1e300", "9223372036854775808", "3.5", "\"3\""}) {
    const TempFolder folder;
    const std::string path = folder.write(
        "m",
        concat("{\"kind\":\"run\",\"target_accuracy\":0.7,\"parameters\":", parameters, "}\n"));
    EXPECT_EQ(MetricsFollower(path).look().unreadable_lines, 1) << parameters;
  }
}

TEST(Metrics, WhatARunSaysAboutItselfComesBack) {
  const TempFolder folder;
  Config config = test::test_config();
  config.checkpoint.init = "start/point";
  config.model.vocab_size = 4096;
  RunFacts facts = test::test_facts();
  facts.first_step = 40;
  MetricsFile file(folder.path("m"));
  file.run(config, facts);
  facts.first_step = 50;
  file.run(config, facts);
  file.data(test::test_data_facts());
  const RunIdentity run = read_metrics(folder.path("m")).run;
  EXPECT_EQ(run.model, "bert-tiny");
  EXPECT_EQ(run.parameters, 340'000'000);
  EXPECT_EQ(run.vocab_size, 4096);
  EXPECT_EQ(run.global_batch_seqs, 448);
  EXPECT_EQ(run.first_step, 40);
  EXPECT_EQ(run.start_weights, "start/point");
  EXPECT_EQ(run.constant_answer_accuracy, 0.05);
}

TEST(Metrics, ARunRecordOfAnOlderProgramIsRead) {
  const TempFolder folder;
  write_new_file(folder.path("m"), "{\"kind\": \"run\", \"target_accuracy\": 0.5}\n");
  const RunIdentity run = read_metrics(folder.path("m")).run;
  EXPECT_EQ(run.target_accuracy, 0.5);
  EXPECT_EQ(run.start_weights, "");
}

TEST(Metrics, ALossThatIsNotFiniteIsNullAndComesBackAsNan) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  StepRecord step = test::test_step(1);
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  file.step(step);
  EXPECT_TRUE(json::parse(test::lines_of(folder.path("m"))[0]).at("loss").is_null());
  const Metrics metrics = read_metrics(folder.path("m"));
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_TRUE(std::isnan(metrics.steps[0].loss));
  EXPECT_TRUE(std::isnan(metrics.steps[0].gradient_norm));
}

TEST(Metrics, StepsThatAResumedRunRepeatsReplaceTheEarlierOnes) {
  const TempFolder folder;
  for (const double loss : {1.0, 2.0}) {
    MetricsFile file(folder.path("m"));
    for (const int64_t step :
         loss == 1.0 ? std::vector<int64_t>{10, 20, 30, 40} : std::vector<int64_t>{20, 35}) {
      StepRecord record = test::test_step(step);
      record.loss = loss;
      file.step(record);
      file.eval(test::test_eval(step, loss / 10));
    }
  }
  const Metrics metrics = read_metrics(folder.path("m"));
  ASSERT_EQ(metrics.steps.size(), 3u);
  ASSERT_EQ(metrics.evals.size(), 3u);
  const std::vector<std::pair<int64_t, double>> wanted = {{10, 1.0}, {20, 2.0}, {35, 2.0}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(metrics.steps[i].step, wanted[i].first);
    EXPECT_EQ(metrics.steps[i].loss, wanted[i].second);
    EXPECT_EQ(metrics.evals[i].mlm_accuracy, wanted[i].second / 10);
  }
}

TEST(Metrics, ALineLeftUnfinishedByAKilledRunIsLeftOutWithAWarning) {
  const TempFolder folder;
  {
    MetricsFile file(folder.path("m"));
    file.step(test::test_step(1));
    file.step(test::test_step(2));
  }
  const std::string text = read_text_file(folder.path("m"));
  write_new_file(folder.path("m"), text.substr(0, text.size() - 20));
  MetricsFile(folder.path("m")).step(test::test_step(2));

  const CapturedLog log;
  const Metrics metrics = read_metrics(folder.path("m"));
  EXPECT_EQ(metrics.steps.size(), 2u);
  EXPECT_EQ(metrics.unreadable_lines, 1);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(log.lines[0].level, LogLevel::kWarning);
}

TEST(Metrics, AFileWithoutAnyRecordIsRefusedByName) {
  const TempFolder folder;
  write_new_file(folder.path("m"), "no\njson\n");
  EXPECT_THAT(error_of([&] { read_metrics(folder.path("m")); }),
              testing::AllOf(testing::HasSubstr(folder.path("m")), testing::HasSubstr("2 lines")));
  EXPECT_THROW(read_metrics(folder.path("absent")), Error);
}

}  // namespace
}  // namespace bertha
