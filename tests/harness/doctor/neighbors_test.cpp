#include "harness/doctor/neighbors.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "tests/support/thread_world.h"

namespace bertha {
namespace {

constexpr int64_t kSent = int64_t{64} << 20;

/// Bytes between ranks when every second rank is the first of a node, and who has a rate.
int64_t bytes_sent(int nodes) {
  std::array<double, 8> rates{};
  ThreadWorld world(2 * nodes);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2 * nodes; ++rank) {
    ranks.emplace_back([&world, &rates, rank] {
      rates[static_cast<size_t>(rank)] = neighbor_rate(world.transport(rank), rank % 2 == 0);
    });
  }
  ranks.clear();
  for (int rank = 0; rank < 2 * nodes; ++rank) {
    const bool measures = rank % 2 == 0 && nodes > 1;
    EXPECT_EQ(rates[static_cast<size_t>(rank)] > 0, measures) << "rank " << rank;
  }
  return world.bytes_sent();
}

TEST(Neighbors, OneNodeHasNone) { EXPECT_LT(bytes_sent(1), kSent); }

TEST(Neighbors, TwoNodesSendOnceEach) {
  const int64_t bytes = bytes_sent(2);
  EXPECT_GE(bytes, 2 * kSent);
  EXPECT_LT(bytes, 3 * kSent);
}

TEST(Neighbors, ThreeNodesSendToBothOthers) {
  const int64_t bytes = bytes_sent(3);
  EXPECT_GE(bytes, 6 * kSent);
  EXPECT_LT(bytes, 7 * kSent);
}

}  // namespace
}  // namespace bertha
