#include "harness/comm/core_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace bertha {
namespace {

using Action = CorePlan::Action;

std::vector<int> cores(int first, int count) {
  std::vector<int> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

std::vector<RankCores> equal_ranks(int ranks, const std::vector<int>& each) {
  return std::vector<RankCores>(static_cast<size_t>(ranks), RankCores{"a", each, {}});
}

TEST(CorePlan, RanksThatShareAllCoresDivideThemWithoutOverlapOrRest) {
  for (const int num_cores : {2, 7, 16, 33}) {
    for (const int ranks : {2, 3, 4, 7}) {
      if (ranks > num_cores) continue;
      std::vector<int> taken;
      for (int self = 0; self < ranks; ++self) {
        const CorePlan plan = plan_cores(equal_ranks(ranks, cores(5, num_cores)), self);
        EXPECT_EQ(plan.action, Action::kBind);
        EXPECT_EQ(plan.threads, static_cast<int>(plan.cores.size()));
        EXPECT_GE(plan.threads, num_cores / ranks);
        taken.insert(taken.end(), plan.cores.begin(), plan.cores.end());
      }
      EXPECT_EQ(taken, cores(5, num_cores)) << num_cores << " cores, " << ranks << " ranks";
    }
  }
}

TEST(CorePlan, ARankAloneKeepsAllItsCores) {
  const CorePlan plan = plan_cores(equal_ranks(1, cores(0, 6)), 0);
  EXPECT_EQ(plan.action, Action::kKeep);
  EXPECT_EQ(plan.threads, 6);
  EXPECT_EQ(plan.reason, "keeps its 6 cores (0-5)");
}

TEST(CorePlan, CoresThatTheLauncherGaveAreKept) {
  const std::vector<RankCores> ranks{{"a", {0}, {}}, {"a", {1}, {}}, {"a", {2, 3}, {}}};
  for (int self = 0; self < 3; ++self) {
    const CorePlan plan = plan_cores(ranks, self);
    EXPECT_EQ(plan.action, Action::kKeep);
    EXPECT_EQ(plan.cores, ranks[static_cast<size_t>(self)].cores);
    EXPECT_EQ(plan.threads, self == 2 ? 2 : 1);
  }
}

TEST(CorePlan, MoreRanksThanCoresAreNotBound) {
  const CorePlan plan = plan_cores(equal_ranks(3, cores(0, 2)), 1);
  EXPECT_EQ(plan.action, Action::kKeep);
  EXPECT_EQ(plan.threads, 1);
  EXPECT_EQ(plan.reason, "not bound: shares 2 cores (0-1) with 2 other ranks");
}

TEST(CorePlan, PartlySharedCoresAreNotDivided) {
  const std::vector<RankCores> ranks{{"a", cores(0, 4), {}}, {"a", cores(2, 4), {}}};
  const CorePlan plan = plan_cores(ranks, 0);
  EXPECT_EQ(plan.action, Action::kKeep);
  EXPECT_EQ(plan.threads, 2);
}

TEST(CorePlan, TheSameCoresOfAnotherMachineAreNotShared) {
  const std::vector<RankCores> ranks{
      {"a", cores(0, 4), {}}, {"b", cores(0, 4), {}}, {"b", cores(0, 4), {}}};
  EXPECT_EQ(plan_cores(ranks, 0).threads, 4);
  EXPECT_EQ(plan_cores(ranks, 2).cores, (std::vector<int>{2, 3}));
}

/// Ranks that may use all of 0..15, and whose GPUs sit near 0..7 or 8..15.
std::vector<RankCores> gpu_ranks(const std::vector<int>& numa_nodes) {
  std::vector<RankCores> ranks;
  for (const int node : numa_nodes) ranks.push_back({"a", cores(0, 16), cores(8 * node, 8)});
  return ranks;
}

TEST(CorePlan, RanksDivideTheCoresNearTheirGpus) {
  const std::vector<RankCores> ranks = gpu_ranks({0, 1, 0, 0});
  EXPECT_EQ(plan_cores(ranks, 0).cores, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan_cores(ranks, 2).cores, (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(plan_cores(ranks, 3).cores, (std::vector<int>{5, 6, 7}));
  const CorePlan alone = plan_cores(ranks, 1);
  EXPECT_EQ(alone.action, Action::kBind);
  EXPECT_EQ(alone.cores, cores(8, 8));
  EXPECT_EQ(alone.threads, 8);
  EXPECT_EQ(alone.reason, "bound to 8 cores (8-15) near its GPU");
  EXPECT_EQ(plan_cores(ranks, 2).reason,
            "bound to 3 cores (2-4) of the 8 near its GPU shared by 3 ranks");
}

TEST(CorePlan, ARankAloneGoesNearItsGpu) {
  const CorePlan plan = plan_cores(gpu_ranks({1}), 0);
  EXPECT_EQ(plan.action, Action::kBind);
  EXPECT_EQ(plan.cores, cores(8, 8));
}

TEST(CorePlan, OnOneNumaNodeTheGpuChangesNothing) {
  const std::vector<RankCores> alone{{"a", cores(0, 6), cores(0, 6)}};
  EXPECT_EQ(plan_cores(alone, 0).reason, "keeps its 6 cores (0-5)");
  const std::vector<RankCores> two{{"a", cores(0, 6), cores(0, 6)},
                                   {"a", cores(0, 6), cores(0, 6)}};
  EXPECT_EQ(plan_cores(two, 1).reason, "bound to 3 cores (3-5) of the 6 shared by 2 ranks");
}

TEST(CorePlan, AnUnknownNumaNodeLeavesThePlainShareToAll) {
  std::vector<RankCores> ranks = gpu_ranks({0, 0, 1, 1});
  ranks[3].near = {};
  for (int self = 0; self < 4; ++self) {
    EXPECT_EQ(plan_cores(ranks, self).cores, cores(4 * self, 4));
  }
}

TEST(CorePlan, MoreGpusThanCoresOnANumaNodeLeaveThePlainShareToAll) {
  std::vector<RankCores> ranks;
  for (int r = 0; r < 3; ++r) ranks.push_back({"a", cores(0, 16), cores(0, 2)});
  ranks.push_back({"a", cores(0, 16), cores(2, 14)});
  for (int self = 0; self < 4; ++self) {
    EXPECT_EQ(plan_cores(ranks, self).cores, cores(4 * self, 4));
  }
}

TEST(CorePlan, CoresThatTheLauncherGaveAreKeptFarFromTheGpu) {
  const std::vector<RankCores> ranks{{"a", cores(0, 8), {}}, {"a", cores(8, 8), cores(8, 8)}};
  for (int self = 0; self < 2; ++self) {
    EXPECT_EQ(plan_cores(ranks, self).action, Action::kKeep);
    EXPECT_EQ(plan_cores(ranks, self).threads, 8);
  }
}

TEST(CorePlan, CoreListJoinsNeighbours) {
  EXPECT_EQ(core_list({}), "");
  EXPECT_EQ(core_list({3}), "3");
  EXPECT_EQ(core_list({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

}  // namespace
}  // namespace bertha
