#include "harness/comm/binding.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/comm/world.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

/// 1 for each processor this process may run on.
std::vector<int64_t> processors_in_use() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int64_t> uses(CPU_SETSIZE);
  for (size_t cpu = 0; cpu < uses.size(); ++cpu) uses[cpu] = CPU_ISSET(cpu, &set) ? 1 : 0;
  return uses;
}

/// The policy by which this thread's memory is placed, as <linux/mempolicy.h> numbers it.
int memory_policy() {
  int policy = -1;
  syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0);
  return policy;
}

/// Restores where this process runs, and a memory policy of its own: other tests follow.
class KeptBinding {
 public:
  KeptBinding() { sched_getaffinity(0, sizeof(set_), &set_); }
  KeptBinding(const KeptBinding&) = delete;
  KeptBinding& operator=(const KeptBinding&) = delete;
  ~KeptBinding() {
    sched_setaffinity(0, sizeof(set_), &set_);
    syscall(SYS_set_mempolicy, 0, nullptr, 0);
  }

 private:
  cpu_set_t set_{};
};

bool has_several_nodes() { return std::filesystem::exists("/sys/devices/system/node/node1"); }

TEST(Binding, BoundRanksShareNoProcessor) {
  World& world = testing::world();
  const std::unique_ptr<Transport> transport = world.make_transport();
  const CoreShare share = core_share(world);
  EXPECT_GE(share.threads, 1);
  EXPECT_NE(share.description, "");

  const int64_t bound = share.description.starts_with("bound to") ? 1 : 0;
  int64_t bound_ranks = 0;
  for (const int64_t other : transport->all_gather({&bound, 1})) bound_ranks += other;
  EXPECT_TRUE(bound_ranks == 0 || bound_ranks == world.size()) << share.description;
  if (world.size() == 1) {
    EXPECT_EQ(bound_ranks, 0) << share.description;
  }

  const std::vector<int64_t> mine = processors_in_use();
  const int64_t processors = std::count(mine.begin(), mine.end(), 1);
  const std::vector<int64_t> all = transport->all_gather(mine);
  if (bound_ranks > 0) {
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      int64_t users = 0;
      for (size_t at = cpu; at < all.size(); at += CPU_SETSIZE) users += all[at];
      EXPECT_LE(users, 1) << "processor " << cpu;
    }
    EXPECT_LE(share.threads, processors);
  } else {
    EXPECT_THAT(share.description, AnyOf(StartsWith("keeps its "), StartsWith("not bound: ")));
    EXPECT_LE(share.threads * world.size(), std::max<int64_t>(processors, world.size()));
  }
}

TEST(Binding, ThreadsOfMpiRunWhereTheProcessIsBound) {
  const std::vector<int64_t> mine = processors_in_use();
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    cpu_set_t set;
    const int id = std::stoi(thread.path().filename());
    ASSERT_EQ(sched_getaffinity(id, sizeof(set), &set), 0);
    for (size_t cpu = 0; cpu < mine.size(); ++cpu) {
      EXPECT_LE(CPU_ISSET(cpu, &set) ? 1 : 0, mine[cpu]) << "thread " << id << ", CPU " << cpu;
    }
  }
}

TEST(Binding, MemoryOfOneNodeNeedsNoPolicy) {
  constexpr int kDefault = 0;
  const std::string& description = testing::world().binding().description;
  EXPECT_EQ(memory_policy() != kDefault, description.find("NUMA node") != std::string::npos)
      << description;
  if (!has_several_nodes()) {
    EXPECT_EQ(memory_policy(), kDefault);
  }
}

/// Binds as rank 0 of 2 of a machine with two NUMA nodes, of a core each, under this system's name.
TEST(Binding, ProcessorsAndMemoryPolicyAreThoseOfThePlan) {
  const std::vector<int64_t> before = processors_in_use();
  if (testing::world().size() > 1 || before[0] == 0 || before[1] == 0 || memory_policy() != 0) {
    GTEST_SKIP() << "wants a process on processors 0 and 1";
  }
  const KeptBinding kept;
  setenv("HWLOC_SYNTHETIC", "pack:2 [numa] core:1 pu:1", 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);
  cpu_set_t two;
  CPU_ZERO(&two);
  CPU_SET(0, &two);
  CPU_SET(1, &two);
  sched_setaffinity(0, sizeof(two), &two);
  const CoreBinding binding = bind_process(
      [](const char* variable) -> const char* {
        const std::string_view name = variable;
        if (name == "OMPI_COMM_WORLD_LOCAL_SIZE") return "2";
        return name.starts_with("OMPI_COMM_WORLD_") ? "0" : nullptr;
      },
      {});
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
  EXPECT_EQ(binding.cores, "0");
  EXPECT_EQ(binding.description,
            "bound to 1 core (0) of the 2 shared by 2 ranks, prefers memory of NUMA node 0");
  const std::vector<int64_t> bound = processors_in_use();
  EXPECT_EQ(std::count(bound.begin(), bound.end(), 1), 1);
  EXPECT_EQ(bound[0], 1);
  constexpr int kPreferred = 1;
  constexpr int kPreferredMany = 5;
  EXPECT_THAT(memory_policy(), AnyOf(kPreferred, kPreferredMany));
}

}  // namespace
}  // namespace bertha
