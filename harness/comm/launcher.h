#pragma once

#include <functional>
#include <optional>
#include <string>

namespace bertha {

/// Number of ranks that a launcher states, and the variable that states it.
struct LauncherClaim {
  std::string variable;
  int ranks = 1;
};

/// The value of an environment variable, or null: std::getenv in the program, a table in tests.
using EnvironmentLookup = std::function<const char*(const char*)>;

/// The statement of the launcher closest to this process: mpirun first, then PMI, torchrun, Slurm.
/// Inside a Slurm allocation an explicit mpirun decides, whatever the size of the allocation.
/// Call it before MPI starts, because MPI sets some of these variables itself.
///
/// Errors    Error(kEnvironment) if the value is not a count.
std::optional<LauncherClaim> find_launcher(const EnvironmentLookup& lookup);

/// Error(kEnvironment) if srun started this process as a task without connecting MPI to the other
/// tasks: MPI would end the process at its start, with a page of text. Call it before MPI starts.
void check_srun_task(const EnvironmentLookup& lookup);

/// Whether a launcher connected MPI to other ranks. Call it before MPI starts.
bool has_mpi_launcher(const EnvironmentLookup& lookup);

/// The number of a rank among the ranks of its machine.
struct LocalRank {
  int rank = 0;
  int size = 1;
};

/// The launcher's statement: {0, 1} without a launcher, nothing if it does not state it.
///
/// Errors    Error(kEnvironment) if a variable is not a number.
std::optional<LocalRank> find_local_rank(const EnvironmentLookup& lookup);

/// Error(kEnvironment) if a launcher started several processes of a command that does not run on
/// ranks: they would all write the same files.
void check_single_process(const EnvironmentLookup& lookup, const std::string& command);

/// Error(kEnvironment) if the claim differs from the world's size: otherwise N processes would each
/// train alone, all as rank 0.
void check_launcher(const std::optional<LauncherClaim>& claim, int world_ranks);

}  // namespace bertha
