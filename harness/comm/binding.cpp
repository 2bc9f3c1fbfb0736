#include "harness/comm/binding.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "harness/comm/core_plan.h"
#include "harness/comm/cpu_quota.h"
#include "harness/comm/rank_name.h"
#include "harness/comm/world.h"
#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

struct TopologyFree {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

/// This machine, or the one that HWLOC_XMLFILE or HWLOC_SYNTHETIC describes, which binds nothing.
std::unique_ptr<hwloc_topology, TopologyFree> read_topology() {
  hwloc_topology_t topology = nullptr;
  // Without devices of the system: to find them, hwloc would start OpenCL, which replaces signal
  // handlers.
  if (hwloc_topology_init(&topology) != 0 ||
      hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
      hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE,
                                     HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_load(topology) != 0) {
    fail(ExitCode::kEnvironment,
         "hwloc cannot read the processors of this machine: ", std::strerror(errno),
         "; check that /sys is mounted");
  }
  return std::unique_ptr<hwloc_topology, TopologyFree>(topology);
}

/// The processors on which this process may run.
Bitmap given_processors(hwloc_topology_t machine) {
  const hwloc_const_cpuset_t open = hwloc_topology_get_allowed_cpuset(machine);
  Bitmap given(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(machine, given.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_copy(given.get(), open);
  }
  hwloc_bitmap_and(given.get(), given.get(), open);
  return given;
}

/// Returns 0, or the reason as an errno. Keeps a policy of the caller.
int prefer_memory_of(hwloc_topology_t machine, int node) {
  constexpr int kFlags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_FIRSTTOUCH;
  hwloc_get_membind(machine, nodes.get(), &policy, kFlags);
  if (policy != HWLOC_MEMBIND_FIRSTTOUCH) return 0;
  hwloc_bitmap_only(nodes.get(), static_cast<unsigned>(node));
  // Not strict: memory comes from other nodes if this one is full.
  return hwloc_set_membind(machine, nodes.get(), HWLOC_MEMBIND_BIND, kFlags) == 0 ? 0 : errno;
}

Bitmap parsed(const char* cores) {
  Bitmap set(hwloc_bitmap_alloc());
  hwloc_bitmap_list_sscanf(set.get(), cores);
  return set;
}

/// Number of ranks of this machine, including this one, that run on some of the cores.
int ranks_on(const Bitmap& cores, const std::string& text, World& world) {
  const std::string machine = machine_name() + " ";
  int ranks = 0;
  for (const std::string& sent : world.gather_texts(machine + text)) {
    if (!sent.starts_with(machine)) continue;
    ranks += hwloc_bitmap_intersects(cores.get(), parsed(sent.c_str() + machine.size()).get());
  }
  return ranks;
}

}  // namespace

CoreBinding bind_process(const EnvironmentLookup& lookup,
                         const std::vector<std::string>& gpu_bus_ids) {
  const std::optional<LocalRank> self = find_local_rank(lookup);
  const auto machine = read_topology();
  const Bitmap given = given_processors(machine.get());
  const CorePlan plan = plan_cores(machine.get(), given.get(), self, gpu_bus_ids);
  const std::string planned = core_text(machine.get(), plan.processors.get());
  if (hwloc_bitmap_isequal(plan.processors.get(), given.get()) != 0) return {planned, plan.reason};
  if (hwloc_set_cpubind(machine.get(), plan.processors.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return {
        core_text(machine.get(), given.get()),
        concat("not bound: the system refused cores ", planned, " (", std::strerror(errno), ")")};
  }
  CoreBinding binding{planned, plan.reason};
  if (plan.memory_node >= 0) {
    const int reason = prefer_memory_of(machine.get(), plan.memory_node);
    if (reason != 0) {
      binding.description += concat(", which the system refused (", std::strerror(reason), ")");
    }
  }
  return binding;
}

CoreShare core_share(World& world) {
  const CoreBinding& binding = world.binding();
  const Bitmap cores = parsed(binding.cores.c_str());
  const int count = hwloc_bitmap_weight(cores.get());
  const int ranks = ranks_on(cores, binding.cores, world);
  CoreShare share{.threads = std::max(1, count / std::max(1, ranks)),
                  .description = binding.description};
  if (ranks > 1) {
    share.description += concat("; shares ", count, " ", plural(count, "core"), " (", binding.cores,
                                ") with ", ranks - 1, " other ", plural(ranks - 1, "rank"));
  }
  const double quota = cpu_quota_cores("/");
  if (quota > 0 && quota < share.threads * world.node_size()) {
    share.threads = std::max(1, static_cast<int>(quota / world.node_size()));
    share.description +=
        concat("; the container's quota is ", quota, " cores for ", world.node_size(), " ranks");
  }
  return share;
}

}  // namespace bertha
