#pragma once

#include <hwloc.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/comm/launcher.h"

namespace bertha {

struct BitmapFree {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

/// Where one process runs on its machine.
struct CorePlan {
  Bitmap processors;        // if it is not bound, those that it was given
  int memory_node = -1;     // NUMA node whose memory it prefers; -1 = no preference
  std::string reason = "";  // for the log
};

/// Decides where a rank runs, from what it knows before MPI starts: the machine, the processors
/// that the rank was given, its place among the ranks of the machine (nothing when the launcher
/// does not say it) and the bus ids of the GPUs that it sees, none when it computes on the CPU.
///
/// Ranks that were given all processors that are open to the job divide its cores evenly, in the
/// order of the topology: the cores near a GPU among the ranks whose GPUs are there, if every rank
/// gets one in this way, otherwise all cores among all ranks. A rank that sees one GPU does not
/// know the GPUs of other ranks, and runs on all cores near its own. A rank that the launcher gave
/// fewer cores keeps them, or only the ones near its GPU. With more ranks than cores no rank is
/// bound.
CorePlan plan_cores(hwloc_topology_t machine, hwloc_const_cpuset_t given,
                    const std::optional<LocalRank>& self,
                    const std::vector<std::string>& gpu_bus_ids);

/// "0-3,8": the cores with a processor in the set, each by its first processor.
std::string core_text(hwloc_topology_t machine, hwloc_const_cpuset_t set);

}  // namespace bertha
