#include "harness/comm/rank_board.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace bertha {
namespace {

TEST(RankBoard, ARankAloneHasTheStatusItEntered) {
  RankBoard board;
  board.enter(5, RunPhase::kEvaluate);
  const std::vector<RankStatus> statuses = board.read();
  ASSERT_EQ(statuses.size(), 1u);
  EXPECT_EQ(statuses[0].step, 5);
  EXPECT_EQ(statuses[0].phase, RunPhase::kEvaluate);
  EXPECT_EQ(statuses[0].process, getpid());
  EXPECT_TRUE(statuses[0].is_here);
}

TEST(RankBoard, RanksThatHaveNotRegisteredAreLeftOut) {
  std::vector<RankBoard::Slot> slots(5);
  const RankBoard second(slots, 1);
  const RankBoard last(slots, 3);
  const std::vector<RankStatus> statuses = last.read();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].rank, 1);
  EXPECT_EQ(statuses[1].rank, 3);
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
  for (const auto call : {CollectiveCall::kBarrier, CollectiveCall::kOfPipeline}) {
    second.enter_call(call);
    expect_grown();
    second.leave_call(call);
    expect_grown();
  }
  second.tick();
  EXPECT_EQ(first.progress(), before);
}

TEST(RankBoard, TheLastCallOfTheTrainingThreadIsKnownAndWhetherItIsLeft) {
  RankBoard board;
  {
    const CallOnBoard first(&board, CollectiveCall::kAllGather);
    EXPECT_EQ(board.status(0).call_moves, 1);
  }
  { const CallOnBoard of_data(&board, CollectiveCall::kOfPipeline); }
  EXPECT_EQ(board.status(0).call_moves, 2);
  EXPECT_EQ(board.status(0).call, CollectiveCall::kAllGather);
  EXPECT_EQ(board.status(0).moves, 2);
  EXPECT_EQ(board.status(0).background_moves, 2);
}

TEST(RankBoard, StatusOfAnotherNodeIsReadButItsProcessIsNotHere) {
  std::vector<RankBoard::Slot> there(3);
  RankBoard sender(there, 1);
  sender.enter(8, RunPhase::kSave);
  sender.enter_call(CollectiveCall::kBarrier);
  std::vector<RankBoard::Slot> here(3);
  RankBoard receiver(here, 0);
  receiver.store(sender.status(1));
  const std::vector<RankStatus> statuses = receiver.read();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[1].step, 8);
  EXPECT_EQ(statuses[1].call, CollectiveCall::kBarrier);
  EXPECT_EQ(statuses[1].call_moves, 1);
  EXPECT_EQ(statuses[1].process, getpid());
  EXPECT_FALSE(statuses[1].is_here);
}

}  // namespace
}  // namespace bertha
