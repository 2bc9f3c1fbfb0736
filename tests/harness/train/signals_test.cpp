#include "harness/train/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace bertha {
namespace {

/// Runs in a process of its own: 10 = not asked to stop, 11 = asked, after these signals.
[[noreturn]] void exit_after(std::initializer_list<int> signals) {
  watch_signals();
  for (const int signal_number : signals) std::raise(signal_number);
  std::_Exit(stop_was_requested() ? 11 : 10);
}

class StopSignalsDeathTest : public ::testing::Test {
 protected:
  // Other tests of this program leave threads behind: each case starts the program anew.
  StopSignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalsDeathTest, NoneAsksForNothing) {
  EXPECT_EXIT(exit_after({}), ::testing::ExitedWithCode(10), "");
}

TEST_F(StopSignalsDeathTest, OneAsksForAStopAtTheEndOfTheStep) {
  EXPECT_EXIT(exit_after({SIGTERM}), ::testing::ExitedWithCode(11), "");
  EXPECT_EXIT(exit_after({SIGUSR1}), ::testing::ExitedWithCode(11), "");
  EXPECT_EXIT(exit_after({SIGINT}), ::testing::ExitedWithCode(11), "");
}

TEST_F(StopSignalsDeathTest, ASecondOneEndsTheProcessAtOnce) {
  EXPECT_EXIT(exit_after({SIGUSR1, SIGTERM}), ::testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(exit_after({SIGINT, SIGINT}), ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace bertha
