#include "harness/train/reporter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/files/text_file.h"
#include "harness/report/run_folder.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/captured_log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

void start(Reporter& reporter, const RunFacts& facts = test::test_facts(),
           const DataFacts& data = test::test_data_facts()) {
  reporter.init_start();
  reporter.init_stop(facts);
  reporter.run_start();
  reporter.data_opened(data);
}

void run_from(int64_t first_step, int64_t last_step, const std::string& run_dir,
              const Config& config) {
  const std::unique_ptr<Reporter> reporter = make_reporter(config, run_dir, 0);
  RunFacts facts = test::test_facts();
  facts.first_step = first_step;
  start(*reporter, facts);
  for (int64_t step = first_step + 1; step <= last_step; ++step) {
    reporter->step(test::test_step(step));
  }
  reporter->eval_start(last_step * 448);
  reporter->eval_stop(test::test_eval(last_step, 0.7211));
  reporter->event("checkpoint saved");
  reporter->run_stop({.status = "success", .samples = last_step * 448});
  reporter->finish();
}

std::string run_dir_in(const TempFolder& folder) {
  const RunFolder run = open_run_folder({.run_dir = folder.path("run")});
  make_parts(run);
  return run.path;
}

int64_t files_in(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(Reporter, AWholeRunLeavesEveryFileOfTheRunFolder) {
  const TempFolder folder;
  const CapturedLog log;
  const std::string run_dir = run_dir_in(folder);
  run_from(0, 7, run_dir, test::test_config());
  for (const char* file : {"mllog/result_0.txt", "metrics.jsonl"}) {
    EXPECT_TRUE(fs::exists(run_dir + "/" + file)) << file;
  }
  EXPECT_EQ(files_in(run_dir + "/tb"), 1);
  // start, data, seven steps, one evaluation, one event
  ASSERT_EQ(log.lines.size(), 11u);
  for (const CapturedLog::Line& line : log.lines) EXPECT_EQ(line.level, LogLevel::kInfo);
  EXPECT_THAT(log.lines[2].text, StartsWith("step     1/6,700 "));
}

TEST(Reporter, ABadShapeOfTheCurveIsAWarningAndAnEventOnce) {
  const TempFolder folder;
  const CapturedLog log;
  const std::string run_dir = run_dir_in(folder);
  const std::unique_ptr<Reporter> reporter = make_reporter(test::test_config(), run_dir, 0);
  start(*reporter);
  for (int64_t i = 1; i <= 5; ++i) {
    reporter->eval_start(i * 448);
    reporter->eval_stop(test::test_eval(i, 0.125));  // loss and accuracy repeat
    const auto warnings = std::count_if(log.lines.begin(), log.lines.end(), [](const auto& line) {
      return line.level == LogLevel::kWarning;
    });
    EXPECT_EQ(warnings, i < 3 ? 0 : 1);
  }
  const std::string metrics = read_text_file(run_dir + "/metrics.jsonl");
  const size_t at = metrics.find("\"text\":\"curve: untouched weights: ");
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(metrics.find("curve: ", at + 10), std::string::npos);
}

TEST(Reporter, TheTargetIsTheOneThatTheDataGive) {
  const TempFolder folder;
  const CapturedLog log;
  Config config = test::test_config();
  config.train.target_accuracy = 0.01;
  config.train.target_times_constant = 1.5;
  const std::string run_dir = run_dir_in(folder);
  const std::unique_ptr<Reporter> reporter = make_reporter(config, run_dir, 0);
  DataFacts data = test::test_data_facts();
  data.target_accuracy = 0.075;
  start(*reporter, test::test_facts(), data);
  reporter->eval_stop(test::test_eval(1, 0.05));
  EXPECT_THAT(log.lines[0].text, HasSubstr(" to accuracy at least 0.0100 or step 6,700"));
  EXPECT_THAT(log.lines[1].text,
              EndsWith("; target accuracy 0.0750, 1.50 times the best constant answer"));
  EXPECT_THAT(log.lines[2].text, HasSubstr(" (target 0.0750) "));
  EXPECT_THAT(read_text_file(run_dir + "/metrics.jsonl"), HasSubstr("\"target_accuracy\":0.075}"));
}

TEST(Reporter, ARankOtherThanTheFirstWritesAndSaysNothing) {
  const TempFolder folder;
  const CapturedLog log;
  const std::unique_ptr<Reporter> reporter =
      make_reporter(test::test_config(), folder.path(), /*rank=*/1);
  start(*reporter);
  reporter->step(test::test_step(1));
  reporter->event("text");
  reporter->run_stop({.status = "aborted", .samples = 448, .exit_code = ExitCode::kRequeue});
  reporter->finish();
  EXPECT_TRUE(log.lines.empty());
  EXPECT_EQ(files_in(folder.path()), 0);
}

TEST(Reporter, AResumedRunAppendsMetricsAndStartsAnotherBenchmarkLog) {
  const TempFolder folder;
  const std::string run_dir = run_dir_in(folder);
  CapturedLog first_log;
  run_from(0, 7, run_dir, test::test_config());
  const std::string first_result = read_text_file(run_dir + "/mllog/result_0.txt");
  CapturedLog log;
  run_from(5, 9, run_dir, test::test_config());

  EXPECT_EQ(read_text_file(run_dir + "/mllog/result_0.txt"), first_result);
  EXPECT_TRUE(fs::exists(run_dir + "/mllog/result_0.resume1.txt"));
  EXPECT_EQ(files_in(run_dir + "/tb"), 2);
  ASSERT_GE(log.lines.size(), 2u);
  EXPECT_THAT(log.lines[1].text, HasSubstr("result_0.resume1.txt"));
  EXPECT_THAT(log.lines[1].text, HasSubstr("are not a valid submission"));

  std::vector<int64_t> steps;
  for (const std::string& line : test::lines_of(run_dir + "/metrics.jsonl")) {
    const auto record = nlohmann::json::parse(line);
    if (record["kind"] == "step") steps.push_back(record["step"]);
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9));
}

TEST(Reporter, AKeyTurnsOffTensorBoard) {
  const TempFolder folder;
  const CapturedLog log;
  const std::string run_dir = run_dir_in(folder);
  Config config = test::test_config();
  config.log.tensorboard = false;
  run_from(0, 1, run_dir, config);
  EXPECT_EQ(files_in(run_dir + "/tb"), 0);
}

TEST(Reporter, AFolderThatIsMissingIsNamedInTheError) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { make_reporter(test::test_config(), folder.path("absent"), 0); }),
              AllOf(HasSubstr(folder.path("absent/mllog/result_0.txt")),
                    HasSubstr("No such file or directory")));
}

TEST(Reporter, AnUnknownStatusIsRefused) {
  const TempFolder folder;
  const CapturedLog log;
  const std::unique_ptr<Reporter> reporter =
      make_reporter(test::test_config(), run_dir_in(folder), 0);
  EXPECT_THROW(reporter->run_stop({.status = "stopped"}), Error);
}

}  // namespace
}  // namespace bertha
