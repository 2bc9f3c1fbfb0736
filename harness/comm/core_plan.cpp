#include "harness/comm/core_plan.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

using Cores = std::vector<hwloc_obj_t>;  // in the order of the topology, neighbors first

/// The cores with a processor in the set, or the processors on machines that do not report cores.
Cores cores_in(hwloc_topology_t machine, hwloc_const_cpuset_t set) {
  const int depth = hwloc_get_type_or_below_depth(machine, HWLOC_OBJ_CORE);
  Cores cores;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_depth(machine, depth, core)) != nullptr;) {
    if (hwloc_bitmap_intersects(core->cpuset, set) != 0) cores.push_back(core);
  }
  return cores;
}

/// "0-3,8".
std::string list_text(const Cores& cores) {
  const Bitmap first_processors(hwloc_bitmap_alloc());
  for (const hwloc_obj_t core : cores) {
    hwloc_bitmap_set(first_processors.get(),
                     static_cast<unsigned>(hwloc_bitmap_first(core->cpuset)));
  }
  char* text = nullptr;
  hwloc_bitmap_list_asprintf(&text, first_processors.get());
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

/// The processors near a GPU; null if the machine does not report them, or all are equally near.
hwloc_const_cpuset_t processors_near(hwloc_topology_t machine, const std::string& bus_id) {
  const hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(machine, bus_id.c_str());
  if (gpu == nullptr) return nullptr;
  const hwloc_cpuset_t near = hwloc_get_non_io_ancestor_obj(machine, gpu)->cpuset;
  const hwloc_cpuset_t all = hwloc_get_root_obj(machine)->cpuset;
  return hwloc_bitmap_isequal(near, all) != 0 ? nullptr : near;
}

Cores cores_near(hwloc_topology_t machine, const std::string& bus_id, hwloc_const_cpuset_t given) {
  const hwloc_const_cpuset_t near = processors_near(machine, bus_id);
  if (near == nullptr) return {};
  const Bitmap both(hwloc_bitmap_alloc());
  hwloc_bitmap_and(both.get(), near, given);
  return cores_in(machine, both.get());
}

/// One rank's part of cores that several ranks share.
struct Share {
  Cores cores;
  size_t place = 0;
  size_t ranks = 1;
};

/// The share of rank `self` among ranks with the same cores, from the cores near each rank's GPU;
/// empty if some rank would get no core in this way.
Share share_near_gpu(const std::vector<Cores>& near, size_t self) {
  const auto sharing = [&](size_t end, const Cores& cores) {
    return static_cast<size_t>(
        std::count(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(end), cores));
  };
  for (const Cores& cores : near) {
    if (cores.size() < sharing(near.size(), cores)) return {};
  }
  return {.cores = near[self],
          .place = sharing(self, near[self]),
          .ranks = sharing(near.size(), near[self])};
}

/// The only NUMA node of these processors; -1 if there are several, or the machine has only one.
int node_around(hwloc_topology_t machine, hwloc_const_cpuset_t processors) {
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_cpuset_to_nodeset(machine, processors, nodes.get());
  hwloc_bitmap_and(nodes.get(), nodes.get(), hwloc_topology_get_allowed_nodeset(machine));
  const bool is_one = hwloc_bitmap_weight(nodes.get()) == 1;
  return is_one && hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_NUMANODE) > 1
             ? hwloc_bitmap_first(nodes.get())
             : -1;
}

std::string describe(const Cores& cores) {
  return concat(cores.size(), " ", plural(cores.size(), "core"), " (", list_text(cores), ")");
}

CorePlan bind_to(const Share& share, const char* whose, hwloc_topology_t machine,
                 hwloc_const_cpuset_t given) {
  const auto begin_of = [&](size_t place) {
    return share.cores.begin() +
           static_cast<std::ptrdiff_t>(share.cores.size() * place / share.ranks);
  };
  const Cores part(begin_of(share.place), begin_of(share.place + 1));
  CorePlan plan{.processors = Bitmap(hwloc_bitmap_alloc())};
  for (const hwloc_obj_t core : part) {
    hwloc_bitmap_or(plan.processors.get(), plan.processors.get(), core->cpuset);
  }
  hwloc_bitmap_and(plan.processors.get(), plan.processors.get(), given);
  plan.memory_node = node_around(machine, plan.processors.get());
  plan.reason = "bound to " + describe(part);
  if (share.ranks > 1) plan.reason += concat(" of the ", share.cores.size());
  plan.reason += whose;
  if (share.ranks > 1) plan.reason += concat(" shared by ", share.ranks, " ranks");
  if (plan.memory_node >= 0) {
    plan.reason += concat(", prefers memory of NUMA node ", plan.memory_node);
  }
  return plan;
}

}  // namespace

CorePlan plan_cores(hwloc_topology_t machine, hwloc_const_cpuset_t given,
                    const std::optional<LocalRank>& self,
                    const std::vector<std::string>& gpu_bus_ids) {
  const Cores all = cores_in(machine, given);
  const size_t rank = self ? static_cast<size_t>(self->rank) : 0;
  const size_t ranks = self ? static_cast<size_t>(self->size) : 0;  // 0 = unknown
  // If the rank has fewer processors than the job, the launcher has already divided them.
  const bool is_alone =
      ranks == 1 || hwloc_bitmap_isequal(given, hwloc_topology_get_allowed_cpuset(machine)) == 0;
  std::vector<Cores> near;
  for (const std::string& gpu : gpu_bus_ids) near.push_back(cores_near(machine, gpu, given));
  const size_t own = near.size() == 1 ? 0 : rank;
  Share near_gpu;
  if (near.size() == 1 || (is_alone && own < near.size())) {
    near_gpu.cores = near[own];
  } else if (ranks > 0 && near.size() >= ranks) {
    near.resize(ranks);
    near_gpu = share_near_gpu(near, own);
  }

  if (!near_gpu.cores.empty() && near_gpu.cores.size() < all.size()) {
    return bind_to(near_gpu, " near its GPU", machine, given);
  }
  CorePlan plan{.processors = Bitmap(hwloc_bitmap_dup(given))};
  if (is_alone) {
    plan.reason = "keeps its " + describe(all);
  } else if (ranks == 0) {
    plan.reason = "not bound: the launcher does not state the rank's number on this machine";
  } else if (ranks > all.size()) {
    plan.reason = "not bound: this machine has more ranks than cores";
  } else {
    plan = bind_to({.cores = all, .place = rank, .ranks = ranks}, "", machine, given);
  }
  if (own < near.size() && near[own].empty() &&
      processors_near(machine, gpu_bus_ids[own]) != nullptr) {
    plan.reason += "; it may not use the cores near its GPU";
  }
  return plan;
}

std::string core_text(hwloc_topology_t machine, hwloc_const_cpuset_t set) {
  return list_text(cores_in(machine, set));
}

}  // namespace bertha
