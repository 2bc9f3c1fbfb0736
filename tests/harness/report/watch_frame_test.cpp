#include "harness/report/watch_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "harness/report/text_format.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNow = 1'700'000'100'000;

Metrics run_under_way() {
  Metrics metrics;
  metrics.run = {.device = "8 x NVIDIA H200",
                 .world_size = 8,
                 .max_steps = 6700,
                 .peak_flops_per_second = 10e12,
                 .model = "bert-tiny",
                 .parameters = 340'000'000,
                 .target_accuracy = 0.2};
  for (int64_t step = 10; step <= 110; step += 10) metrics.steps.push_back(test::test_step(step));
  for (int64_t i = 1; i <= 5; ++i) {
    metrics.evals.push_back(test::test_eval(60 + 10 * i, 0.10 + 0.015 * static_cast<double>(i)));
  }
  metrics.events = {{kNow - 60'000, "saved runs/x/ckpt/step_00000100"}};
  metrics.last_time_ms = kNow - 3'000;
  return metrics;
}

WatchView view_of(int64_t columns, int64_t rows) {
  return {
      .run_dir = "runs/x", .state = "running", .columns = columns, .rows = rows, .now_ms = kNow};
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(WatchFrame, FitsTheTerminal) {
  for (const int64_t columns : {80, 100, 160, 250}) {
    for (const int64_t rows : {24, 40, 60}) {
      const auto lines = lines_of_text(watch_frame(run_under_way(), view_of(columns, rows)));
      EXPECT_LE(std::ssize(lines), rows) << columns;
      EXPECT_GE(std::ssize(lines), rows - 4) << columns;
      for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns) << line;
    }
  }
}

TEST(WatchFrame, NoLineIsLongerThanANarrowTerminal) {
  Metrics metrics = run_under_way();
  metrics.events.back().text = "saved " + std::string(100, 'x');
  for (const int64_t columns : {1, 10, 23, 24, 50}) {
    WatchView view = view_of(columns, 40);
    view.run_dir = "/a/folder/with/a/long/path/" + std::string(100, 'x');
    view.alarms = {std::string(100, 'y') + " and more words"};
    for (const std::string& line : lines_of_text(watch_frame(metrics, view))) {
      EXPECT_LE(columns_of(line), columns) << line;
    }
  }
}

TEST(WatchFrame, SaysWhereTheRunStands) {
  const std::string frame = watch_frame(run_under_way(), view_of(160, 50));
  EXPECT_THAT(frame,
              AllOf(HasSubstr("runs/x   bert-tiny   340M parameters   8 ranks on 8 x NVIDIA"),
                    HasSubstr("running   last record 3s ago"), HasSubstr("step 110 of 6,700"),
                    HasSubstr("49,280 samples"), HasSubstr("end in "), HasSubstr("target in ")));
  EXPECT_THAT(frame, AllOf(HasSubstr("mlm loss -0.750   accuracy 1.100   nsp loss 0.750"),
                           HasSubstr("accuracy 0.1750, target 0.2000"), HasSubstr("at step 110"),
                           HasSubstr("6.27k sequences/s   1.50M tokens/s   62 ms per step"),
                           HasSubstr("MFU 50 %"), HasSubstr("5.20k watts"),
                           HasSubstr("lowest clock 1,755 MHz"), HasSubstr("64.0 GiB")));
  EXPECT_THAT(frame, AllOf(HasSubstr("forward 18 ms, 30 %"),
                           HasSubstr("longest on rank 5: 54 ms, the others 50 ms"),
                           HasSubstr("2 skipped updates"), HasSubstr("alarms      none"),
                           HasSubstr(" saved runs/x/ckpt"), HasSubstr("Masked-token loss: "),
                           HasSubstr("Masked-token accuracy: ")));
}

TEST(WatchFrame, AHeadThatIsNotTrainedHasNoFigures) {
  Metrics metrics = run_under_way();
  metrics.steps.back() = test::without_next_sentence(metrics.steps.back());
  metrics.evals.back() = test::without_next_sentence(metrics.evals.back());
  EXPECT_THAT(watch_frame(metrics, view_of(80, 40)),
              AllOf(HasSubstr("accuracy 1.100   learning rate 2.4e-4\n"),
                    HasSubstr("mlm loss 2.125   at step 110\n"), Not(HasSubstr("nsp"))));
}

TEST(WatchFrame, ARunThatHasEndedHasNoTimeLeft) {
  WatchView view = view_of(160, 50);
  view.goes_on = false;
  view.state = "ended as planned";
  EXPECT_THAT(watch_frame(run_under_way(), view),
              AllOf(HasSubstr("ended as planned"), Not(HasSubstr("end in ")),
                    Not(HasSubstr("target in "))));
}

TEST(WatchFrame, AlarmsAreWholeSentencesOverSeveralLines) {
  WatchView view = view_of(80, 40);
  view.alarms = {
      "divergence: the masked-token loss of step 110 is 30, and guessing costs 10.3: the "
      "updates are too large. Lower optimizer.base_learning_rate"};
  const std::string frame = watch_frame(run_under_way(), view);
  EXPECT_THAT(frame, AllOf(HasSubstr("alarms      divergence: "),
                           HasSubstr("optimizer.base_learning_rate\n"), Not(HasSubstr("none"))));
}

TEST(WatchFrame, ARunBeforeItsFirstStepSaysSo) {
  Metrics metrics;
  metrics.run.max_steps = 10;
  EXPECT_THAT(watch_frame(metrics, view_of(80, 24)), HasSubstr("no step yet"));
}

}  // namespace
}  // namespace bertha
