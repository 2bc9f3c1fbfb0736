#pragma once

#include <cstdint>
#include <string>

#include "harness/comm/world.h"

namespace bertha {

struct CoreShare {
  int threads = 1;               // default number of compute threads of this rank
  std::string description = "";  // what was done and why, for the log

  /// Of train.threads_per_rank, where 0 stands for the default.
  int threads_for(int64_t threads_per_rank) const {
    return threads_per_rank > 0 ? static_cast<int>(threads_per_rank) : threads;
  }
};

/// Binds this process to its share of the cores that it and the other ranks of the machine may
/// use (core_plan.h says how they are divided), and counts them. Call it on all ranks at once,
/// before threads start: they inherit the binding. `gpu_bus_id` is where the rank's GPU sits
/// ("0000:1b:00.0"), "" without one. A CPU quota of the container lowers the count.
/// When the system forbids binding, the description says so and the rank runs unbound.
CoreShare take_core_share(World& world, const std::string& gpu_bus_id);

/// NUMA node of the PCI device "0000:1b:00.0"; -1 where the system does not say. `root` is where
/// /sys is: "/" in the program.
int numa_node_of(const std::string& root, const std::string& bus_id);

}  // namespace bertha
