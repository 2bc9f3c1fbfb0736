#include "harness/comm/watchdog.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

using std::chrono::milliseconds;

/// What a watchdog of this limit says first.
struct Heard {
  std::promise<std::string> sentence;
  ExitCode code = ExitCode::kSuccess;

  Watchdog::Options options(double timeout_s, int num_ranks = 1) {
    return {.timeout_s = timeout_s, .num_ranks = num_ranks, .on_failure = [this](const Error& e) {
              code = e.code;
              sentence.set_value(e.what());
            }};
  }
};

Watchdog::Options counting(std::atomic<int>& failures, double timeout_s) {
  return {.timeout_s = timeout_s, .on_failure = [&](const Error&) { ++failures; }};
}

TEST(Watchdog, StandingStillNamesHostStepAndPhase) {
  Heard heard;
  RankBoard board;
  Watchdog watchdog(board, heard.options(0.1));
  board.enter(120, RunPhase::kSave);
  EXPECT_THAT(heard.sentence.get_future().get(),
              AllOf(HasSubstr(board.read().front().host), HasSubstr("step 120"),
                    HasSubstr("phase saving")));
  EXPECT_EQ(heard.code, ExitCode::kHang);
}

TEST(Watchdog, ARankWhoseWatchdogTicksNoMoreIsToBlame) {
  Heard heard;
  std::vector<RankBoard::Slot> slots(3);
  RankBoard mine(slots, 0);
  RankBoard stopped(slots, 1);  // nobody ticks for it
  Watchdog watchdog(mine, heard.options(0.4, 2));
  mine.enter(3, RunPhase::kTrain);
  stopped.enter(3, RunPhase::kTrain);
  EXPECT_THAT(heard.sentence.get_future().get(), StartsWith("rank 1 of 2"));
}

TEST(Watchdog, ARankWhoseWorkHasEndedIsNotToBlame) {
  Heard heard;
  std::vector<RankBoard::Slot> slots(3);
  RankBoard mine(slots, 0);
  RankBoard ended(slots, 1);
  mine.enter(3, RunPhase::kFinish);
  ended.enter(3, RunPhase::kFinish);
  { Watchdog other(ended, {.timeout_s = 0}); }
  Watchdog watchdog(mine, heard.options(0.4, 2));
  EXPECT_THAT(heard.sentence.get_future().get(), StartsWith("rank 0 of 2"));
}

TEST(Watchdog, BeatsOfAnyRankKeepItQuietLongerThanTheTimeout) {
  std::atomic<int> failures = 0;
  std::vector<RankBoard::Slot> slots(3);
  RankBoard mine(slots, 0);
  RankBoard other(slots, 1);
  {
    Watchdog watchdog(mine, counting(failures, 2));
    for (int i = 0; i < 26; ++i) {
      other.beat();
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  EXPECT_EQ(failures, 0);
}

TEST(Watchdog, TimeoutOfZeroNeverFires) {
  std::atomic<int> failures = 0;
  RankBoard board;
  {
    Watchdog watchdog(board, counting(failures, 0));
    std::this_thread::sleep_for(milliseconds(600));
  }
  EXPECT_EQ(failures, 0);
}

TEST(Watchdog, AFailedCheckEndsTheRunAlthoughItBeats) {
  Heard heard;
  std::atomic<bool> is_broken = false;
  RankBoard board;
  Watchdog watchdog(board, heard.options(0));
  watchdog.set_check([&] {
    if (is_broken) fail(ExitCode::kEnvironment, "a peer is gone");
  });
  is_broken = true;
  EXPECT_EQ(heard.sentence.get_future().get(), "a peer is gone");
  EXPECT_EQ(heard.code, ExitCode::kEnvironment);
}

TEST(Watchdog, APeerOfThisNodeThatIsGoneEndsTheRun) {
  const pid_t peer = fork();
  if (peer == 0) {
    for (;;) pause();
  }
  Heard heard;
  std::vector<RankBoard::Slot> slots(3);
  RankBoard mine(slots, 0);
  RankBoard other(slots, 1);
  other.enter(9, RunPhase::kTrain);
  slots[1].process = peer;
  Watchdog watchdog(mine, heard.options(0, 2));
  kill(peer, SIGKILL);
  waitpid(peer, nullptr, 0);
  EXPECT_THAT(
      heard.sentence.get_future().get(),
      AllOf(StartsWith("rank 1 of 2"), HasSubstr("step 9, phase training"), HasSubstr("killed")));
  EXPECT_EQ(heard.code, kLostRank);
}

TEST(Watchdog, ANodeThatIsSilentWhileTheLauncherEndsTheJobIsNamed) {
  Heard heard;
  std::vector<RankBoard::Slot> there(4);
  RankBoard gone(there, 2);
  gone.enter(9, RunPhase::kTrain);
  std::vector<RankBoard::Slot> here(4);
  RankBoard mine(here, 0);
  mine.store(gone.status(2));
  Watchdog::Options options = heard.options(0, 3);
  options.is_ended_by_launcher = [] { return true; };
  Watchdog watchdog(mine, options);
  EXPECT_THAT(heard.sentence.get_future().get(),
              AllOf(StartsWith("rank 2 on "), HasSubstr("step 9, phase training"),
                    HasSubstr("has not answered since the launcher began to end this job")));
  EXPECT_EQ(heard.code, kLostRank);
}

TEST(Watchdog, EndsAtOnceWhenTheRunEnds) {
  const auto begin = std::chrono::steady_clock::now();
  RankBoard board;
  {
    Watchdog watchdog(board, {.timeout_s = 3600, .on_failure = [](const Error&) {}});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace bertha
