#include "harness/comm/core_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

/// A machine that hwloc builds from a description, with GPUs near NUMA nodes; -1 = near none.
class Machine {
 public:
  explicit Machine(const char* synthetic, const std::vector<int>& gpu_nodes = {}) {
    hwloc_topology_t bare = nullptr;
    hwloc_topology_init(&bare);
    EXPECT_EQ(hwloc_topology_set_synthetic(bare, synthetic), 0) << synthetic;
    EXPECT_EQ(hwloc_topology_load(bare), 0) << synthetic;
    char* buffer = nullptr;
    int length = 0;
    EXPECT_EQ(hwloc_topology_export_xmlbuffer(bare, &buffer, &length, 0), 0);
    std::string xml = buffer;
    hwloc_free_xmlbuffer(bare, buffer);
    hwloc_topology_destroy(bare);
    for (const int node : gpu_nodes) {
      gpus.push_back(concat("0000:", 10 + gpus.size(), ":00.0"));
      const std::string gpu = concat("<object type=\"PCIDev\" pci_busid=\"", gpus.back(),
                                     "\" pci_type=\"0302 [10de:2335] [10de:18be] a1\" "
                                     "pci_link_speed=\"0\"/>");
      // Behind the NUMA node's own object, or as the last of the machine.
      const size_t memory = xml.find(concat("type=\"NUMANode\" os_index=\"", node, '"'));
      xml.insert(node < 0 ? xml.rfind("</object>") : xml.find("</object>", memory) + 9, gpu);
    }
    hwloc_topology_init(&topology_);
    hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_type_filter(topology_, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
    EXPECT_EQ(
        hwloc_topology_set_xmlbuffer(topology_, xml.c_str(), static_cast<int>(xml.size() + 1)), 0);
    EXPECT_EQ(hwloc_topology_load(topology_), 0) << xml;
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { hwloc_topology_destroy(topology_); }

  /// Opens these processors alone to the job.
  void open(const char* processors) {
    EXPECT_EQ(
        hwloc_topology_allow(topology_, set_of(processors).get(), nullptr, HWLOC_ALLOW_FLAG_CUSTOM),
        0);
  }

  /// Of a rank to which the launcher gave these processors, "" = all of the job.
  CorePlan plan(const std::optional<LocalRank>& self, const char* given = "") const {
    const Bitmap set = *given == '\0'
                           ? Bitmap(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_)))
                           : set_of(given);
    return plan_cores(topology_, set.get(), self, gpus);
  }
  std::string cores(const std::optional<LocalRank>& self, const char* given = "") const {
    return core_text(topology_, plan(self, given).processors.get());
  }
  std::string reason(const std::optional<LocalRank>& self, const char* given = "") const {
    return plan(self, given).reason;
  }

  std::vector<std::string> gpus;

 private:
  static Bitmap set_of(const char* processors) {
    Bitmap set(hwloc_bitmap_alloc());
    hwloc_bitmap_list_sscanf(set.get(), processors);
    return set;
  }

  hwloc_topology_t topology_ = nullptr;
};

constexpr const char* kTwoNodes = "pack:2 [numa] core:8 pu:1";

TEST(CorePlan, RanksThatShareAllCoresDivideThemWithoutOverlapOrRest) {
  for (const int num_cores : {2, 7, 16, 33}) {
    const Machine machine(concat("core:", num_cores, " pu:1").c_str());
    for (const int ranks : {2, 3, 4, 7}) {
      if (ranks > num_cores) continue;
      const Bitmap taken(hwloc_bitmap_alloc());
      for (int self = 0; self < ranks; ++self) {
        const CorePlan plan = machine.plan(LocalRank{self, ranks});
        EXPECT_THAT(plan.reason, StartsWith("bound to "));
        EXPECT_GE(hwloc_bitmap_weight(plan.processors.get()), num_cores / ranks);
        EXPECT_EQ(hwloc_bitmap_intersects(taken.get(), plan.processors.get()), 0);
        hwloc_bitmap_or(taken.get(), taken.get(), plan.processors.get());
      }
      EXPECT_EQ(hwloc_bitmap_weight(taken.get()), num_cores) << ranks << " ranks";
    }
  }
}

TEST(CorePlan, ARankAloneKeepsAllItsCores) {
  EXPECT_EQ(Machine("core:6 pu:1").reason(LocalRank{}), "keeps its 6 cores (0-5)");
  EXPECT_EQ(Machine(kTwoNodes).reason(LocalRank{}), "keeps its 16 cores (0-15)");
}

TEST(CorePlan, CoresThatTheLauncherGaveAreKept) {
  const Machine machine("core:4 pu:1");
  EXPECT_EQ(machine.reason(LocalRank{0, 3}, "0"), "keeps its 1 core (0)");
  EXPECT_EQ(machine.cores(LocalRank{1, 3}, "1"), "1");
  EXPECT_EQ(machine.cores(LocalRank{2, 3}, "2-3"), "2-3");
}

TEST(CorePlan, MoreRanksThanCoresAreNotBound) {
  const Machine machine("core:2 pu:1");
  EXPECT_EQ(machine.reason(LocalRank{1, 3}), "not bound: this machine has more ranks than cores");
  EXPECT_EQ(machine.cores(LocalRank{1, 3}), "0-1");
}

TEST(CorePlan, ARankThatIsNotKnownIsNotBound) {
  EXPECT_EQ(Machine(kTwoNodes).reason(std::nullopt),
            "not bound: the launcher does not state the rank's number on this machine");
  EXPECT_EQ(Machine(kTwoNodes).cores(std::nullopt), "0-15");
  EXPECT_EQ(Machine(kTwoNodes, {1}).cores(std::nullopt), "8-15");
}

TEST(CorePlan, BothProcessorsOfACoreStayTogether) {
  const Machine machine("core:2 pu:2");
  EXPECT_EQ(hwloc_bitmap_weight(machine.plan(LocalRank{1, 2}).processors.get()), 2);
  EXPECT_EQ(machine.reason(LocalRank{1, 2}), "bound to 1 core (2) of the 2 shared by 2 ranks");
}

TEST(CorePlan, RanksGoToMemoryNodesInTurn) {
  const Machine machine(kTwoNodes);
  EXPECT_EQ(machine.reason(LocalRank{1, 4}),
            "bound to 4 cores (4-7) of the 16 shared by 4 ranks, prefers memory of NUMA node 0");
  EXPECT_EQ(machine.cores(LocalRank{2, 4}), "8-11");
  EXPECT_EQ(machine.plan(LocalRank{2, 4}).memory_node, 1);
  // Cores of both nodes.
  EXPECT_EQ(machine.cores(LocalRank{1, 3}), "5-9");
  EXPECT_EQ(machine.plan(LocalRank{1, 3}).memory_node, -1);
  EXPECT_EQ(Machine("core:8 pu:1").plan(LocalRank{0, 2}).memory_node, -1);
}

TEST(CorePlan, RanksDivideTheCoresNearTheirGpus) {
  const Machine machine(kTwoNodes, {0, 1, 0, 0});
  EXPECT_EQ(machine.cores(LocalRank{0, 4}), "0-1");
  EXPECT_EQ(machine.cores(LocalRank{2, 4}), "2-4");
  EXPECT_EQ(machine.cores(LocalRank{3, 4}), "5-7");
  EXPECT_EQ(machine.reason(LocalRank{1, 4}),
            "bound to 8 cores (8-15) near its GPU, prefers memory of NUMA node 1");
  EXPECT_EQ(machine.plan(LocalRank{1, 4}).memory_node, 1);
  EXPECT_EQ(machine.reason(LocalRank{2, 4}),
            "bound to 3 cores (2-4) of the 8 near its GPU shared by 3 ranks, prefers memory of "
            "NUMA node 0");
}

TEST(CorePlan, ARankAloneGoesNearItsGpu) {
  EXPECT_EQ(Machine(kTwoNodes, {1}).cores(LocalRank{}), "8-15");
  EXPECT_EQ(Machine(kTwoNodes, {1, 0}).cores(LocalRank{}), "8-15");
}

TEST(CorePlan, ARankThatSeesOneGpuRunsOnAllCoresNearIt) {
  const Machine machine(kTwoNodes, {1});
  EXPECT_EQ(machine.cores(LocalRank{0, 8}), "8-15");
  EXPECT_EQ(machine.cores(LocalRank{7, 8}), "8-15");
}

TEST(CorePlan, OnOneNumaNodeTheGpuChangesNothing) {
  const Machine machine("[numa] core:6 pu:1", {-1, -1});
  EXPECT_EQ(machine.reason(LocalRank{}), "keeps its 6 cores (0-5)");
  EXPECT_EQ(machine.reason(LocalRank{1, 2}), "bound to 3 cores (3-5) of the 6 shared by 2 ranks");
}

TEST(CorePlan, AnUnknownNumaNodeLeavesThePlainShareToAll) {
  const Machine machine(kTwoNodes, {0, 0, 1, -1});
  for (int self = 0; self < 4; ++self) {
    EXPECT_EQ(machine.cores(LocalRank{self, 4}), concat(4 * self, '-', 4 * self + 3));
  }
}

TEST(CorePlan, FewerGpusThanRanksLeaveThePlainShareToAll) {
  const Machine machine(kTwoNodes, {1, 1});
  EXPECT_EQ(machine.cores(LocalRank{0, 4}), "0-3");
  EXPECT_EQ(machine.cores(LocalRank{3, 4}), "12-15");
}

TEST(CorePlan, MoreGpusThanCoresOnANumaNodeLeaveThePlainShareToAll) {
  const Machine machine("pack:2 [numa] core:2 pu:1", {0, 0, 0, 1});
  for (int self = 0; self < 4; ++self) EXPECT_EQ(machine.cores(LocalRank{self, 4}), concat(self));
}

TEST(CorePlan, OfTheLaunchersCoresThoseNearTheGpuAreUsed) {
  const Machine machine(kTwoNodes, {1, 1});
  EXPECT_EQ(machine.cores(LocalRank{0, 2}, "6-9"), "8-9");
  EXPECT_EQ(machine.cores(LocalRank{1, 2}, "10-15"), "10-15");
  EXPECT_EQ(machine.reason(LocalRank{0, 2}, "0-7"),
            "keeps its 8 cores (0-7); it may not use the cores near its GPU");
}

TEST(CorePlan, ANodeThatIsNotOpenToTheJobIsNamed) {
  Machine machine(kTwoNodes, {0, 1});
  machine.open("0-5");
  EXPECT_EQ(machine.reason(LocalRank{0, 2}),
            "bound to 3 cores (0-2) of the 6 shared by 2 ranks, prefers memory of NUMA node 0");
  EXPECT_EQ(machine.cores(LocalRank{1, 2}), "3-5");
  EXPECT_THAT(machine.reason(LocalRank{1, 2}), EndsWith("; it may not use the cores near its GPU"));
}

}  // namespace
}  // namespace bertha
