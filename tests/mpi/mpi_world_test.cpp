#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "harness/comm/world.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

World& world() { return testing::world(); }

TEST(MpiWorld, SumsOverItsRanks) {
  const std::unique_ptr<Transport> transport = world().make_transport();
  const int64_t ranks = world().size();
  const std::vector<int64_t> mine{1, world().rank(), int64_t{1} << 40};
  EXPECT_EQ(transport->sum(mine),
            (std::vector<int64_t>{ranks, ranks * (ranks - 1) / 2, ranks << 40}));
  EXPECT_TRUE(transport->sum({}).empty());
}

TEST(MpiWorld, AllRanksOfThisMachineShareANode) {
  EXPECT_EQ(world().node_rank(), world().rank());
  EXPECT_EQ(world().node_size(), world().size());
}

TEST(MpiWorld, TheNodeIsAWorldOfItsOwn) {
  const std::unique_ptr<World> node = world().make_node_world();
  EXPECT_EQ(node->rank(), world().node_rank());
  EXPECT_EQ(node->size(), world().node_size());
  EXPECT_EQ(node->node_size(), node->size());
  EXPECT_EQ(node->broadcast(node->rank() == 0 ? "first" : "", 0), "first");
  EXPECT_EQ(node->agree_max(node->rank()), node->size() - 1);
  const std::unique_ptr<Transport> transport = node->make_transport();
  EXPECT_EQ(transport->sum(std::vector<int64_t>{1}), std::vector<int64_t>{node->size()});
}

TEST(MpiWorld, AgreesOnTheLargestValueOfAnyRank) {
  for (int owner = 0; owner < world().size(); ++owner) {
    EXPECT_EQ(world().agree_max(world().rank() == owner ? 75 : 0), 75);
    EXPECT_EQ(world().agree_max(world().rank() == owner ? -1 : -2), -1);
  }
}

TEST(MpiWorld, BroadcastsTextOfAnyLengthFromAnyRoot) {
  for (int root = 0; root < world().size(); ++root) {
    for (const size_t length : {0, 1, 7, 511, 100000}) {
      const std::string text(length, static_cast<char>('a' + root));
      const std::string mine = world().rank() == root ? text : "other";
      EXPECT_EQ(world().broadcast(mine, root), text);
    }
  }
}

TEST(MpiWorld, BroadcastsBytesInPlaceFromAnyRoot) {
  for (int root = 0; root < world().size(); ++root) {
    for (const size_t count : {0, 1, 100003}) {
      const auto fill = static_cast<std::byte>(world().rank());
      std::vector<std::byte> bytes(count, fill);
      world().broadcast_bytes(bytes, root);
      EXPECT_EQ(bytes, std::vector<std::byte>(count, static_cast<std::byte>(root)));
    }
  }
}

TEST(MpiWorld, OneRankOfTheNodeMayReportAFailure) {
  const int64_t mine = world().claim_failure() ? 1 : 0;
  const std::unique_ptr<Transport> transport = world().make_transport();
  int64_t claims = 0;
  for (const int64_t claim : transport->all_gather({&mine, 1})) claims += claim;
  EXPECT_EQ(claims, 1);
  EXPECT_FALSE(world().claim_failure());
}

}  // namespace
}  // namespace bertha
