#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// The variables of this process that can change what a run does or where it ran: those of OpenMP,
/// OpenBLAS, CUDA, NCCL, UCX, HDF5 and of the launchers, by name. For the run folder.
std::vector<std::pair<std::string, std::string>> recorded_environment();

/// The id of the batch job that this process is in, the same when the job starts again after a
/// requeue: Slurm's; "" outside of one.
///
/// Errors    Error(kEnvironment) when it could not be a part of a folder's name.
std::string batch_job();

}  // namespace bertha
