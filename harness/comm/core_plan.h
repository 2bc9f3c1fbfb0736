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

/// Processors and memory of one process.
struct CorePlan {
  Bitmap processors;        // its given processors if it is not bound
  int memory_node = -1;     // NUMA node whose memory it prefers; -1 = no preference
  std::string reason = "";  // for the log
};

/// Decides on which cores a rank runs, from facts that are known before MPI starts: the machine,
/// the processors that the rank was given, its number among the ranks of the machine (nothing if
/// the launcher does not state it) and the bus ids of the GPUs that it sees, none if it computes on
/// the CPU.
///
/// Ranks that were given all processors of the job divide its cores evenly, in the order of the
/// topology: the cores near a GPU among the ranks with GPUs there if every rank gets one in this
/// way, otherwise all cores among all ranks. A rank that sees one GPU does not know the GPUs of
/// other ranks and runs on all cores near its own. A rank that the launcher gave fewer cores keeps
/// them, or only those near its GPU. With more ranks than cores, no rank is bound.
CorePlan plan_cores(hwloc_topology_t machine, hwloc_const_cpuset_t given,
                    const std::optional<LocalRank>& self,
                    const std::vector<std::string>& gpu_bus_ids);

/// "0-3,8": the cores with a processor in the set, each by its first processor.
std::string core_text(hwloc_topology_t machine, hwloc_const_cpuset_t set);

}  // namespace bertha
