#include "harness/comm/binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <vector>

#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

/// Restores where this process may run: other tests of the program follow.
class KeptAffinity {
 public:
  KeptAffinity() { sched_getaffinity(0, sizeof(set_), &set_); }
  KeptAffinity(const KeptAffinity&) = delete;
  KeptAffinity& operator=(const KeptAffinity&) = delete;
  ~KeptAffinity() { sched_setaffinity(0, sizeof(set_), &set_); }
  int processors() const { return CPU_COUNT(&set_); }

 private:
  cpu_set_t set_{};
};

/// 1 for each processor this process may run on.
std::vector<int64_t> processors_in_use() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int64_t> uses(CPU_SETSIZE);
  for (size_t cpu = 0; cpu < uses.size(); ++cpu) uses[cpu] = CPU_ISSET(cpu, &set) ? 1 : 0;
  return uses;
}

TEST(Binding, BoundRanksShareNoProcessor) {
  const KeptAffinity before;
  World& world = testing::world();
  const std::unique_ptr<Transport> transport = world.make_transport();
  const CoreShare share = take_core_share(world, "");
  EXPECT_GE(share.threads, 1);
  EXPECT_NE(share.description, "");

  const int64_t bound = share.description.rfind("bound to", 0) == 0 ? 1 : 0;
  int64_t bound_ranks = 0;
  for (const int64_t other : transport->all_gather({&bound, 1})) bound_ranks += other;
  EXPECT_TRUE(bound_ranks == 0 || bound_ranks == world.size()) << share.description;
  if (world.size() == 1) {
    EXPECT_EQ(bound_ranks, 0) << share.description;
  }

  const std::vector<int64_t> all = transport->all_gather(processors_in_use());
  if (bound_ranks > 0) {
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      int64_t users = 0;
      for (size_t at = cpu; at < all.size(); at += CPU_SETSIZE) users += all[at];
      EXPECT_LE(users, 1) << "processor " << cpu;
    }
  } else if (bound == 0) {
    cpu_set_t now;
    sched_getaffinity(0, sizeof(now), &now);
    EXPECT_EQ(CPU_COUNT(&now), before.processors()) << share.description;
  }
}

}  // namespace
}  // namespace bertha
