#include "harness/comm/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

namespace bertha {
namespace {

using std::chrono::milliseconds;

TEST(Watchdog, SilenceNamesRankStepAndPhase) {
  std::promise<std::string> hang;
  Watchdog watchdog({.timeout_s = 0.1,
                     .rank_name = "rank 3 of 4 on node7",
                     .on_failure = [&](const Error& error) {
                       EXPECT_EQ(error.code, ExitCode::kHang);
                       hang.set_value(error.what());
                     }});
  watchdog.beat(120, "backward");
  EXPECT_THAT(
      hang.get_future().get(),
      ::testing::AllOf(::testing::HasSubstr("rank 3 of 4 on node7"),
                       ::testing::HasSubstr("step 120"), ::testing::HasSubstr("phase backward")));
}

TEST(Watchdog, BeatsKeepItQuietLongerThanTheTimeout) {
  std::atomic<int> hangs = 0;
  {
    Watchdog watchdog({.timeout_s = 2, .on_failure = [&](const Error&) { ++hangs; }});
    for (int i = 0; i < 26; ++i) {
      watchdog.beat(i, "forward");
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  EXPECT_EQ(hangs, 0);
}

TEST(Watchdog, TimeoutOfZeroNeverFires) {
  std::atomic<int> hangs = 0;
  {
    Watchdog watchdog({.timeout_s = 0, .on_failure = [&](const Error&) { ++hangs; }});
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_EQ(hangs, 0);
}

TEST(Watchdog, AFailedCheckEndsTheRunAlthoughItBeats) {
  std::promise<std::string> failed;
  std::atomic<bool> is_broken = false;
  Watchdog watchdog({.timeout_s = 0,
                     .check =
                         [&] {
                           if (is_broken) fail(ExitCode::kEnvironment, "a peer is gone");
                         },
                     .on_failure =
                         [&](const Error& error) {
                           EXPECT_EQ(error.code, ExitCode::kEnvironment);
                           failed.set_value(error.what());
                         }});
  watchdog.beat(7, "backward");
  is_broken = true;
  EXPECT_EQ(failed.get_future().get(), "a peer is gone");
}

TEST(Watchdog, EndsAtOnceWhenTheRunEnds) {
  const auto begin = std::chrono::steady_clock::now();
  {
    Watchdog watchdog({.timeout_s = 3600, .on_failure = [](const Error&) {}});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace bertha
