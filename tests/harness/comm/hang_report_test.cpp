#include "harness/comm/hang_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "harness/comm/rank_name.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

constexpr double kStill_s = 60;

Watched rank(int number, int64_t moves, RunPhase phase = RunPhase::kTrain, double silent_s = 0) {
  Watched watched{.status = {.rank = number,
                             .process = 100 + number,
                             .step = 7,
                             .phase = phase,
                             .moves = moves},
                  .silent_s = silent_s,
                  .still_s = 62};
  std::strcpy(watched.status.host, number < 2 ? "node1" : "node2");
  return watched;
}

TEST(HangReport, ARankThatIsNotHeardOfIsNamedWhereverItStands) {
  // It left the last collective call before it was stopped: the others are behind it.
  const HangReport report =
      hang_report({rank(0, 40), rank(1, 41, RunPhase::kTrain, 58)}, 2, kStill_s);
  EXPECT_THAT(report.message,
              AllOf(StartsWith("rank 1 of 2 on node1 (process 101) has not answered for 60 s"),
                    HasSubstr("last seen in step 7, phase training, for 62 s; "
                              "rank 0 waits in step 7, phase training")));
  ASSERT_EQ(report.late.size(), 1u);
  EXPECT_EQ(report.late[0].rank, 1);
  EXPECT_TRUE(report.are_silent);
}

TEST(HangReport, OfRanksThatAnswerTheOneBehindIsNamed) {
  const HangReport report = hang_report(
      {rank(0, 41, RunPhase::kTrain), rank(1, 40, RunPhase::kSave), rank(2, 41)}, 3, kStill_s);
  EXPECT_THAT(
      report.message,
      AllOf(StartsWith("rank 1 of 3 on node1 (process 101) has made no progress for 60 s in "
                       "step 7, phase saving, for 62 s"),
            HasSubstr("; ranks 0,2 wait in step 7, phase training")));
  ASSERT_EQ(report.late.size(), 1u);
  EXPECT_FALSE(report.are_silent);
}

TEST(HangReport, TheLastCollectiveCallOfEachIsNamedAndWhetherItIsLeft) {
  std::vector<Watched> ranks{rank(0, 43), rank(1, 43), rank(2, 42), rank(3, 44)};
  for (Watched& one : ranks) {
    one.status.call = CollectiveCall::kAllGather;
    one.status.call_moves = one.status.moves - 20;
  }
  EXPECT_THAT(hang_report(ranks, 4, kStill_s).message,
              AllOf(StartsWith("rank 2 of 4"),
                    HasSubstr("phase training, after collective call 11 (all-gather), for 62 s"),
                    HasSubstr("; ranks 0-1 wait in step 7, phase training, in collective call 12 "
                              "(all-gather); rank 3 waits in step 7, phase training, after")));
}

TEST(HangReport, LateRanksInSeveralPlacesHaveEachItsOwn) {
  EXPECT_THAT(
      hang_report({rank(0, 41), rank(1, 40, RunPhase::kSave, 58), rank(2, 40, {}, 58)}, 3, kStill_s)
          .message,
      HasSubstr("last seen in rank 1 in step 7, phase saving, for 62 s; rank 2 in step 7, "
                "phase starting, for 62 s; rank 0 waits"));
}

TEST(HangReport, AmongEqualsThePipelinesThreadsDecide) {
  std::vector<Watched> ranks{rank(0, 40, RunPhase::kWaitForData),
                             rank(1, 40, RunPhase::kWaitForData)};
  ranks[0].status.background_moves = 12;
  ranks[1].status.background_moves = 13;
  EXPECT_THAT(hang_report(ranks, 2, kStill_s).message, StartsWith("rank 0 of 2"));
}

TEST(HangReport, NobodyIsBlamedWhenNobodyIsBehind) {
  const HangReport report = hang_report({rank(0, 40), rank(1, 40)}, 2, kStill_s);
  EXPECT_TRUE(report.late.empty());
  EXPECT_THAT(report.message,
              AllOf(StartsWith("all 2 reachable ranks"), HasSubstr("none is behind")));
}

TEST(HangReport, ARankAloneIsNamedByItsHost) {
  EXPECT_THAT(
      hang_report({rank(0, 40, RunPhase::kSave)}, 1, kStill_s).message,
      AllOf(StartsWith("node1 (process 100) has made no progress"), HasSubstr("phase saving")));
}

TEST(RankList, JoinsNeighbors) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({0, 2, 1, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(HangReport, ManyRanksAreCountedInsteadOfNamed) {
  std::vector<Watched> ranks{rank(0, 41)};
  for (int r = 1; r < 1000; ++r) ranks.push_back(rank(r, 40));
  const HangReport report = hang_report(ranks, 1000, kStill_s);
  EXPECT_EQ(report.late.size(), 4u);
  EXPECT_THAT(report.message, AllOf(HasSubstr("rank 4 of 1000"), Not(HasSubstr("rank 5 of 1000")),
                                    HasSubstr("and 995 more have made no progress")));
}

}  // namespace
}  // namespace bertha
