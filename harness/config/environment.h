#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// Environment variables of OpenMP, OpenBLAS, CUDA, NCCL, UCX, HDF5 and the launchers that can
/// affect a run and contain no secret, sorted by name. Recorded in the run folder.
std::vector<std::pair<std::string, std::string>> recorded_environment();

/// The id of this process's Slurm job, which does not change on a requeue; "" outside of a job.
///
/// Errors    Error(kEnvironment) if it is not valid in the name of a folder.
std::string batch_job();

}  // namespace bertha
