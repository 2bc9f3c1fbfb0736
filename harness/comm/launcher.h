#pragma once

#include <functional>
#include <optional>
#include <string>

namespace bertha {

/// How many ranks a launcher says it started, and which variable says so.
struct LauncherClaim {
  std::string variable;
  int ranks = 1;
};

/// The value of an environment variable, or null: std::getenv in the program, a table in tests.
using EnvironmentLookup = std::function<const char*(const char*)>;

/// What the launcher closest to this process says: mpirun first, then PMI, torchrun, Slurm. Inside
/// a Slurm allocation an explicit mpirun decides, whatever the size of the allocation.
/// To be called before MPI starts, because MPI sets some of these variables itself.
///
/// Errors    Error(kEnvironment) when the value is not a count.
std::optional<LauncherClaim> find_launcher(const EnvironmentLookup& lookup);

/// Error(kEnvironment) when srun started this process as a task and gave MPI no way to the other
/// tasks: MPI would end the process while it starts, with a page of text. To be called before.
void check_srun_task(const EnvironmentLookup& lookup);

/// Whether a launcher gave MPI a way to other ranks. To be called before MPI starts.
bool has_mpi_launcher(const EnvironmentLookup& lookup);

/// The place of a rank among the ranks of its machine.
struct LocalRank {
  int rank = 0;
  int size = 1;
};

/// What the launcher says: {0, 1} without a launcher, nothing when it does not say.
///
/// Errors    Error(kEnvironment) when a variable is not a number.
std::optional<LocalRank> find_local_rank(const EnvironmentLookup& lookup);

/// Error(kEnvironment) when a launcher started several processes of a command that does not run on
/// ranks: they would all write the same files.
void check_single_process(const EnvironmentLookup& lookup, const std::string& command);

/// Error(kEnvironment) when the claim differs from the world's size: otherwise N processes would
/// each train alone, all of them as rank 0.
void check_launcher(const std::optional<LauncherClaim>& claim, int world_ranks);

}  // namespace bertha
