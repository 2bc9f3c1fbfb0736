#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/comm/launcher.h"

namespace bertha {

class World;

/// Cores of this process.
struct CoreBinding {
  std::string cores = "";        // each by its first processor: "0-3,8"
  std::string description = "";  // the binding and its reason, for the log
};

/// Binds this process to its share of the machine's cores, as core_plan.h describes, and its
/// memory to the NUMA node around them. Call it before MPI or any thread starts: they inherit the
/// binding, and so does the memory that they allocate. `gpu_bus_ids` are the GPUs that this process
/// sees ("0000:1b:00.0"), none if it computes on the CPU. A memory policy of the caller
/// (`numactl --membind`) is kept. If the system forbids binding, the description says so.
///
/// Errors    Error(kEnvironment) if hwloc cannot read the machine, or a variable of the launcher
///           is malformed.
CoreBinding bind_process(const EnvironmentLookup& lookup,
                         const std::vector<std::string>& gpu_bus_ids);

struct CoreShare {
  int threads = 1;               // default number of compute threads of this rank
  std::string description = "";  // the binding, and what lowers the number

  /// Number of threads for a value of train.threads_per_rank; 0 = the default.
  int threads_for(int64_t threads_per_rank) const {
    return threads_per_rank > 0 ? static_cast<int>(threads_per_rank) : threads;
  }
};

/// Counts the cores of this rank's binding, divided by the number of ranks that run on some of
/// them; a CPU quota of the container lowers the count. All ranks call it.
CoreShare core_share(World& world);

}  // namespace bertha
