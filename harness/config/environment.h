#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// Environment variables that can affect a run and hold no secret, sorted by name: of OpenMP,
/// OpenBLAS, CUDA, NCCL, UCX, HDF5 and the launchers. Recorded in the run folder.
std::vector<std::pair<std::string, std::string>> recorded_environment();

/// The id of this process's Slurm job, which stays the same after a requeue; "" outside of one.
///
/// Errors    Error(kEnvironment) when it is not valid in the name of a folder.
std::string batch_job();

}  // namespace bertha
