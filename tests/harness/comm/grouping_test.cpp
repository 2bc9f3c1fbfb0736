#include "harness/comm/grouped_collectives.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha::testing {
namespace {

constexpr NodeSizes kOneNode{.ranks = 8, .smallest = 8, .largest = 8};
constexpr NodeSizes kFourNodes{.ranks = 32, .smallest = 8, .largest = 8};
constexpr NodeSizes kRankPerNode{.ranks = 4, .smallest = 1, .largest = 1};
constexpr NodeSizes kUnequal{.ranks = 12, .smallest = 4, .largest = 8};

TEST(PlanGrouping, FollowsTheNodes) {
  for (const auto group : {ShardGroup::kAuto, ShardGroup::kNode, ShardGroup::kWorld}) {
    EXPECT_EQ(plan_grouping(group, kOneNode), Grouping::kFlat) << word_of(group);
  }
  EXPECT_EQ(plan_grouping(ShardGroup::kAuto, kFourNodes), Grouping::kNode);
  EXPECT_EQ(plan_grouping(ShardGroup::kNode, kFourNodes), Grouping::kNode);
  EXPECT_EQ(plan_grouping(ShardGroup::kWorld, kFourNodes), Grouping::kTwoLevels);
  EXPECT_EQ(plan_grouping(ShardGroup::kAuto, kRankPerNode), Grouping::kFlat);
  EXPECT_EQ(plan_grouping(ShardGroup::kNode, kRankPerNode), Grouping::kNode);
  EXPECT_EQ(plan_grouping(ShardGroup::kAuto, kUnequal), Grouping::kFlat);
  EXPECT_EQ(plan_grouping(ShardGroup::kWorld, kUnequal), Grouping::kFlat);
}

TEST(PlanGrouping, RefusesNodesOfUnequalSizeAsGroups) {
  EXPECT_THAT(error_of([&] { plan_grouping(ShardGroup::kNode, kUnequal); }, ExitCode::kUsage),
              HasSubstr("optimizer.shard_group is node, but nodes have 4 to 8 ranks"));
}

}  // namespace
}  // namespace bertha::testing
