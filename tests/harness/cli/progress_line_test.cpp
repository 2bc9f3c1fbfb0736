#include "harness/cli/progress_line.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

TEST(ProgressText, TellsShareAmountRateAndEta) {
  EXPECT_EQ(progress_text({.label = "prepare",
                           .unit = "documents",
                           .done = 1260,
                           .total = 3400,
                           .elapsed_seconds = 10},
                          100),
            "prepare  37% 1.26k/3.40k documents 126/s ETA 17s");
}

TEST(ProgressText, WithoutTotalOrTimeSaysLess) {
  EXPECT_EQ(progress_text({.label = "read", .unit = "bytes", .done = 7}, 100), "read 7 bytes");
  EXPECT_EQ(progress_text({.label = "read", .unit = "bytes", .done = 0, .total = 9}, 100),
            "read   0% 0/9 bytes");
  EXPECT_EQ(
      progress_text({.label = "read", .unit = "bytes", .done = 9, .total = 9, .elapsed_seconds = 3},
                    100),
      "read 100% 9/9 bytes 3/s ETA 0s");
}

TEST(ProgressText, IsCutToTheColumns) {
  EXPECT_EQ(progress_text({.label = "prepare", .unit = "documents", .done = 5}, 9), "prepare 5");
  EXPECT_EQ(progress_text({.label = "prepare", .unit = "documents", .done = 5}, 0), "");
}

// Calls update(i, steps) once a second and returns what was written.
std::vector<std::string> run(const Terminal& terminal, int64_t steps) {
  std::vector<std::string> written;
  double now = 100;
  {
    ProgressLine progress({.label = "work",
                           .unit = "steps",
                           .terminal = terminal,
                           .write = [&](const std::string& text) { written.push_back(text); },
                           .clock = [&] { return now; }});
    for (int64_t i = 1; i <= steps; ++i) {
      now += 1;
      progress.update(i, steps);
    }
  }
  return written;
}

TEST(ProgressLine, PlainLinesComeAtGrowingIntervals) {
  const std::vector<std::string> lines = run({.redraws = false}, 3600);
  EXPECT_GE(lines.size(), 10U);
  EXPECT_LE(lines.size(), 25U) << "an hour of work fits one screen";
  for (const std::string& line : lines) {
    EXPECT_EQ(line.back(), '\n');
    EXPECT_EQ(line.find('\r'), std::string::npos);
  }
}

TEST(ProgressLine, ShortWorkPrintsNothingInALog) {
  EXPECT_THAT(run({.redraws = false}, 1), ElementsAre());
}

TEST(ProgressLine, NothingIsPrintedWhereNoneIsWanted) {
  show_progress_lines(false);
  EXPECT_THAT(run({.redraws = false}, 3600), ElementsAre());
  EXPECT_THAT(run({.redraws = true, .columns = 80}, 2), ElementsAre());
  show_progress_lines(true);
}

TEST(ProgressLine, ATerminalRedrawsOneLineAndEndsIt) {
  EXPECT_THAT(run({.redraws = true, .columns = 80}, 2),
              ElementsAre("\r\033[Kwork  50% 1/2 steps 1/s ETA 1s",
                          "\r\033[Kwork 100% 2/2 steps 1/s ETA 0s", "\n"));
}

TEST(ProgressLine, ATerminalLineLeavesTheLastColumnFree) {
  const std::vector<std::string> lines = run({.redraws = true, .columns = 10}, 1);
  EXPECT_THAT(lines, ElementsAre("\r\033[Kwork 100%", "\n"));
}

}  // namespace
}  // namespace bertha
