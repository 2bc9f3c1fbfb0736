#include "harness/report/rank_times.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

std::vector<RankTimes> ranks_with(const std::vector<float>& compute_ms, float wait_ms = 0) {
  std::vector<RankTimes> ranks;
  for (const float ms : compute_ms) ranks.push_back({.compute_ms = ms, .data_wait_ms = wait_ms});
  return ranks;
}

RankWatch watch() {
  return RankWatch([](int64_t rank) { return "rank " + std::to_string(rank) + " on node"; });
}

TEST(RankSummary, NamesTheSlowestAndTheMedianOfTheOthers) {
  std::vector<RankTimes> ranks = ranks_with({50, 90, 52, 48});
  ranks[2].data_wait_ms = 8;
  for (RankTimes& rank : ranks) rank.power_watts = 600;
  ranks[3].sm_mhz = 1200;
  const RankSummary found = summary_of(ranks);
  EXPECT_EQ(found.slowest, 1);
  EXPECT_EQ(found.slowest_compute_ms, 90);
  EXPECT_EQ(found.others_compute_ms, 50);
  EXPECT_EQ(found.longest_waiting, 2);
  EXPECT_EQ(found.longest_wait_ms, 8);
  EXPECT_EQ(found.mean_wait_ms, 2);
  EXPECT_EQ(found.power_watts, 2400);
  EXPECT_EQ(summary_of({}).slowest_compute_ms, 0);
}

TEST(RankWatch, NamesARankThatIsSlowInThreeRecordsOnce) {
  RankWatch ranks = watch();
  const auto slow = ranks_with({50, 50, 75, 51});
  EXPECT_THAT(ranks.add(slow, 100), IsEmpty());
  EXPECT_THAT(ranks.add(slow, 100), IsEmpty());
  EXPECT_THAT(ranks.add(slow, 100),
              ElementsAre(HasSubstr("rank 2 on node is slow: its forward and backward take 75 ms "
                                    "per step, 1.50 times the 50 ms of the others' median")));
  EXPECT_THAT(ranks.add(slow, 100), IsEmpty());
}

TEST(RankWatch, OneThatIsSlowNowAndThenIsNotNamed) {
  RankWatch ranks = watch();
  for (int i = 0; i < 12; ++i) {
    EXPECT_THAT(ranks.add(ranks_with({50, i % 3 == 2 ? 50.0f : 75.0f}), 100), IsEmpty());
    EXPECT_THAT(ranks.add(ranks_with({i % 2 == 0 ? 75.0f : 50.0f, 60}), 100), IsEmpty());
  }
}

TEST(RankWatch, DifferencesOfAFewPercentAreNoneAndOneRankIsNeverSlow) {
  RankWatch ranks = watch();
  for (int i = 0; i < 9; ++i) {
    EXPECT_THAT(ranks.add(ranks_with({50, 60}), 100), IsEmpty());
    EXPECT_THAT(ranks.add(ranks_with({70}), 100), IsEmpty());
  }
}

TEST(RankWatch, SaysSoWhereItsClockIsLow) {
  RankWatch ranks = watch();
  std::vector<RankTimes> slow = ranks_with({50, 50, 75});
  for (RankTimes& rank : slow) rank.sm_mhz = 1755;
  slow[2].sm_mhz = 1200;
  std::vector<std::string> said;
  for (int i = 0; i < 3; ++i) said = ranks.add(slow, 100);
  EXPECT_THAT(said,
              ElementsAre(HasSubstr("its SMs run at 1,200 MHz, those of the others at 1,755")));
}

TEST(RankWatch, WaitsForDataAreNamedOnce) {
  RankWatch ranks = watch();
  auto waiting = ranks_with({50, 50}, 30);
  waiting[1].data_wait_ms = 38;
  EXPECT_THAT(ranks.add(waiting, 100), IsEmpty());
  EXPECT_THAT(ranks.add(waiting, 100), IsEmpty());
  EXPECT_THAT(ranks.add(waiting, 100),
              ElementsAre(HasSubstr("training waited for data during 34 % of the time in 3 "
                                    "consecutive records, rank 1 on node for 38 %, the longest.")));
  EXPECT_THAT(ranks.add(waiting, 100), IsEmpty());
  RankWatch quick = watch();
  for (int i = 0; i < 9; ++i) EXPECT_THAT(quick.add(ranks_with({50, 50}, 9), 100), IsEmpty());
}

}  // namespace
}  // namespace bertha
