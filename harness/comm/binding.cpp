#include "harness/comm/binding.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <vector>

#include "harness/comm/core_plan.h"
#include "harness/comm/cpu_quota.h"
#include "harness/comm/rank_name.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

class Topology {
 public:
  Topology() {
    if (hwloc_topology_init(&topology_) != 0 || hwloc_topology_load(topology_) != 0) {
      fail(ExitCode::kEnvironment,
           "hwloc cannot read the processors of this machine: ", std::strerror(errno),
           "; check that /sys is mounted");
    }
  }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology() { hwloc_topology_destroy(topology_); }

  /// The processors this process may run on now.
  Bitmap allowed() const {
    Bitmap set(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology_, set.get(), HWLOC_CPUBIND_PROCESS) != 0) {
      hwloc_bitmap_copy(set.get(), hwloc_topology_get_allowed_cpuset(topology_));
    }
    return set;
  }

  /// The cores with an allowed processor, each named by the first processor of the core.
  std::vector<int> cores_in(const Bitmap& allowed) const {
    std::vector<int> cores;
    for (hwloc_obj_t core = next_core(nullptr); core != nullptr; core = next_core(core)) {
      if (hwloc_bitmap_intersects(core->cpuset, allowed.get()) != 0) cores.push_back(id_of(core));
    }
    return cores;
  }

  /// Those of them on one NUMA node; none for a node that is not there, such as -1.
  std::vector<int> cores_near(int numa_node, const Bitmap& allowed) const {
    if (numa_node < 0) return {};
    const hwloc_obj_t node =
        hwloc_get_numanode_obj_by_os_index(topology_, static_cast<unsigned>(numa_node));
    if (node == nullptr) return {};
    const Bitmap both(hwloc_bitmap_alloc());
    hwloc_bitmap_and(both.get(), allowed.get(), node->cpuset);
    return cores_in(both);
  }

  /// 0, or the reason as an errno.
  int bind(const std::vector<int>& cores, const Bitmap& allowed) {
    const Bitmap set(hwloc_bitmap_alloc());
    for (hwloc_obj_t core = next_core(nullptr); core != nullptr; core = next_core(core)) {
      if (std::ranges::find(cores, id_of(core)) != cores.end()) {
        hwloc_bitmap_or(set.get(), set.get(), core->cpuset);
      }
    }
    hwloc_bitmap_and(set.get(), set.get(), allowed.get());
    return hwloc_set_cpubind(topology_, set.get(), HWLOC_CPUBIND_PROCESS) == 0 ? 0 : errno;
  }

 private:
  hwloc_obj_t next_core(hwloc_obj_t previous) const {
    return hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_CORE, previous);
  }
  static int id_of(hwloc_obj_t core) { return hwloc_bitmap_first(core->complete_cpuset); }

  hwloc_topology_t topology_ = nullptr;
};

/// What each rank may use, in rank order: "machine core core ... | near near ...".
std::vector<RankCores> gather_cores(World& world, const RankCores& mine) {
  std::ostringstream text;
  text << mine.machine;
  for (const int core : mine.cores) text << ' ' << core;
  text << " |";
  for (const int core : mine.near) text << ' ' << core;
  std::vector<RankCores> ranks;
  for (const std::string& sent : world.gather_texts(text.str())) {
    std::istringstream received(sent);
    RankCores rank;
    received >> rank.machine;
    for (int core = 0; received >> core;) rank.cores.push_back(core);
    received.clear();
    received.ignore(std::numeric_limits<std::streamsize>::max(), '|');
    for (int core = 0; received >> core;) rank.near.push_back(core);
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace

CoreShare take_core_share(World& world, const std::string& gpu_bus_id) {
  Topology topology;
  const Bitmap allowed = topology.allowed();
  const RankCores mine{.machine = machine_name(),
                       .cores = topology.cores_in(allowed),
                       .near = topology.cores_near(numa_node_of("/", gpu_bus_id), allowed)};
  const CorePlan plan = plan_cores(gather_cores(world, mine), world.rank());
  CoreShare share{plan.threads, plan.reason};
  if (plan.action == CorePlan::Action::kBind) {
    const int reason = topology.bind(plan.cores, allowed);
    if (reason != 0) {
      share.description = concat("not bound: the system refused cores ", core_list(plan.cores),
                                 " (", std::strerror(reason), ")");
    }
  }
  const double quota = cpu_quota_cores("/");
  if (quota > 0 && quota < share.threads * world.node_size()) {
    share.threads = std::max(1, static_cast<int>(quota / world.node_size()));
    share.description +=
        concat("; the container's quota is ", quota, " cores for ", world.node_size(), " ranks");
  }
  return share;
}

int numa_node_of(const std::string& root, const std::string& bus_id) {
  if (bus_id.empty()) return -1;
  int node = -1;
  std::ifstream file(std::filesystem::path(root) / "sys/bus/pci/devices" / bus_id / "numa_node");
  return file >> node ? node : -1;
}

}  // namespace bertha
