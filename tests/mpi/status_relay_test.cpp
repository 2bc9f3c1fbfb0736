#include "harness/comm/status_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;

/// As if each rank were a node of its own: boards that nobody else can see.
struct Node {
  Communicator world{MPI_COMM_WORLD};
  Communicator self{MPI_COMM_SELF};
  std::vector<RankBoard::Slot> slots =
      std::vector<RankBoard::Slot>(static_cast<size_t>(world.size()) + 1);
  RankBoard board{slots, world.rank()};
};

void relay_until(StatusRelay& relay, const std::function<bool()>& condition) {
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
  while (!condition() && Clock::now() < limit) {
    relay.relay();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(condition());
}

TEST(StatusRelay, TheFirstNodeHasTheStatusOfAllAndTheOthersThatOfRank0) {
  Node node;
  StatusRelay relay(node.world, node.self, node.board);
  const int rank = node.world.rank();
  node.board.enter(100 + rank, RunPhase::kSave);
  const size_t known = rank == 0 ? static_cast<size_t>(node.world.size()) : 2;
  relay_until(relay, [&] { return node.board.read().size() == known; });
  for (const RankStatus& status : node.board.read()) {
    EXPECT_EQ(status.step, 100 + status.rank);
    EXPECT_EQ(status.phase, RunPhase::kSave);
    EXPECT_EQ(status.is_here, status.rank == rank);
    EXPECT_STRNE(status.host, "");
  }
}

TEST(StatusRelay, ProgressOfOneNodeIsSeenOnAll) {
  Node node;
  StatusRelay relay(node.world, node.self, node.board);
  const bool gets_on = node.world.rank() == node.world.size() - 1;
  if (gets_on) {
    for (int i = 0; i < 1000; ++i) node.board.beat();
  }
  // Its own comes back to it in the sum of all.
  const int64_t wanted = gets_on && node.world.size() > 1 ? 2000 : 1000;
  relay_until(relay, [&] { return node.board.progress() >= wanted; });
}

TEST(StatusRelay, EndsAtOnceWithoutAnyMessage) {
  Node node;
  StatusRelay relay(node.world, node.self, node.board);
}

}  // namespace
}  // namespace bertha
