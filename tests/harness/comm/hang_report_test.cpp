#include "harness/comm/hang_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace bertha {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kStill_s = 60;

Watched rank(int number, int64_t moves, RunPhase phase = RunPhase::kTrain, double silent_s = 0) {
  Watched watched{.status = {.rank = number,
                             .process = 100 + number,
                             .step = 7,
                             .phase = phase,
                             .moves = moves},
                  .silent_s = silent_s};
  std::strcpy(watched.status.host, number < 2 ? "node1" : "node2");
  return watched;
}

TEST(HangReport, ARankThatIsNotHeardOfIsNamedWhereverItStands) {
  // It left the last collective call before it was stopped: the others are behind it.
  const std::string text =
      hang_report({rank(0, 40), rank(1, 41, RunPhase::kTrain, 58)}, 2, kStill_s);
  EXPECT_THAT(text, AllOf(StartsWith("rank 1 of 2 on node1 (process 101) has not answered"),
                          HasSubstr("60 s"), HasSubstr("step 7, phase training")));
  EXPECT_THAT(text, Not(HasSubstr("rank 0")));
}

TEST(HangReport, OfRanksThatAnswerTheOneBehindIsNamed) {
  const std::string text = hang_report(
      {rank(0, 41, RunPhase::kTrain), rank(1, 40, RunPhase::kSave), rank(2, 41)}, 3, kStill_s);
  EXPECT_THAT(text, AllOf(StartsWith("rank 1 of 3 on node1 (process 101) has stood still for 60 s "
                                     "in step 7, phase saving"),
                          HasSubstr("the others wait in step 7, phase training")));
}

TEST(HangReport, AmongEqualsThePipelinesThreadsDecide) {
  std::vector<Watched> ranks{rank(0, 40, RunPhase::kWaitForData),
                             rank(1, 40, RunPhase::kWaitForData)};
  ranks[0].status.background_moves = 12;
  ranks[1].status.background_moves = 13;
  EXPECT_THAT(hang_report(ranks, 2, kStill_s), StartsWith("rank 0 of 2"));
}

TEST(HangReport, NobodyIsBlamedWhenNobodyIsBehind) {
  const std::string text = hang_report({rank(0, 40), rank(1, 40)}, 2, kStill_s);
  EXPECT_THAT(text, AllOf(StartsWith("all 2 ranks"), HasSubstr("none is behind")));
}

TEST(HangReport, ARankAloneIsNamedByItsHost) {
  EXPECT_THAT(hang_report({rank(0, 40, RunPhase::kSave)}, 1, kStill_s),
              AllOf(StartsWith("node1 (process 100) has stood still"), HasSubstr("phase saving")));
}

TEST(HangReport, ManyRanksAreCountedInsteadOfNamed) {
  std::vector<Watched> ranks{rank(0, 41)};
  for (int r = 1; r < 1000; ++r) ranks.push_back(rank(r, 40));
  const std::string text = hang_report(ranks, 1000, kStill_s);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 4 of 1000"), Not(HasSubstr("rank 5 of 1000")),
                          HasSubstr("and 995 more have stood still")));
}

}  // namespace
}  // namespace bertha
