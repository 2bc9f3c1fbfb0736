#include "harness/comm/rank_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace bertha {
namespace {

TEST(RankBoard, ARankAloneStandsWhereItSays) {
  RankBoard board;
  board.enter(5, RunPhase::kEvaluate);
  const std::vector<Standing> standings = board.read();
  ASSERT_EQ(standings.size(), 1u);
  EXPECT_EQ(standings[0].step, 5);
  EXPECT_EQ(standings[0].phase, RunPhase::kEvaluate);
  EXPECT_EQ(standings[0].process, getpid());
  EXPECT_TRUE(standings[0].is_here);
}

TEST(RankBoard, RanksThatHaveNotSignedInAreLeftOut) {
  std::vector<RankBoard::Slot> slots(5);
  const RankBoard second(slots, 1);
  const RankBoard last(slots, 3);
  const std::vector<Standing> standings = last.read();
  ASSERT_EQ(standings.size(), 2u);
  EXPECT_EQ(standings[0].rank, 1);
  EXPECT_EQ(standings[1].rank, 3);
}

TEST(RankBoard, EverySignOfLifeOfAnyRankIsProgressAndATickIsNot) {
  std::vector<RankBoard::Slot> slots(3);
  RankBoard first(slots, 0);
  RankBoard second(slots, 1);
  int64_t before = first.progress();
  const auto expect_grown = [&] {
    EXPECT_GT(first.progress(), before);
    before = first.progress();
  };
  second.enter(1, RunPhase::kTrain);
  expect_grown();
  second.beat();
  expect_grown();
  second.move();
  expect_grown();
  second.move_in_background();
  expect_grown();
  second.tick();
  EXPECT_EQ(first.progress(), before);
}

TEST(RankBoard, NewsOfAnotherNodeAreReadButTheirProcessIsNotHere) {
  std::vector<RankBoard::Slot> there(3);
  RankBoard sender(there, 1);
  sender.enter(8, RunPhase::kSave);
  std::vector<RankBoard::Slot> here(3);
  RankBoard receiver(here, 0);
  receiver.post(sender.standing(1));
  const std::vector<Standing> standings = receiver.read();
  ASSERT_EQ(standings.size(), 2u);
  EXPECT_EQ(standings[1].step, 8);
  EXPECT_EQ(standings[1].process, getpid());
  EXPECT_FALSE(standings[1].is_here);
}

}  // namespace
}  // namespace bertha
