#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

/// Reads each shard in a process of its own, `num_processes` at a time (0: one per core), since a
/// damaged structure can end the process inside of the HDF5 library (hdf5_guard.h). For each
/// shard a sentence about that, or "" when its process ended by itself, whatever it found.
///
/// Errors    Error(kEnvironment) when no process can be started.
/// Threads   none may run besides the caller's: the processes are forked.
std::vector<std::string> probe_shards(const std::vector<std::string>& paths, int64_t num_processes);

}  // namespace bertha
