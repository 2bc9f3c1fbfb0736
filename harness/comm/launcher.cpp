#include "harness/comm/launcher.h"

#include <array>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/parse_number.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

struct Known {
  const char* variable;
  const char* remedy;
};

constexpr std::array<Known, 4> kKnown{{
    {"OMPI_COMM_WORLD_SIZE", "start with the mpirun of the Open MPI that bertha was built with"},
    {"PMI_SIZE",
     "start with the mpirun of the Open MPI that bertha was built with, or with `srun --mpi=pmix`"},
    {"WORLD_SIZE",
     "start with mpirun or srun instead of torchrun, or unset WORLD_SIZE to train in one process"},
    {"SLURM_NTASKS",
     "start with `srun --mpi=pmix` or `mpirun`, or unset SLURM_NTASKS to train in one process"},
}};

int parse_from(int least, const char* variable, std::string_view text, const char* want) {
  const int number = parse_number<int>(text).value_or(-1);
  if (number < least) {
    fail(ExitCode::kEnvironment, variable, "='", text, "', want ", want,
         "; correct it or unset it");
  }
  return number;
}

bool has(const EnvironmentLookup& lookup, const char* variable) {
  const char* value = lookup(variable);
  return value != nullptr && *value != '\0';
}

struct LocalVariables {
  const char* rank;
  const char* size;
};

/// Variables of Open MPI, Intel MPI and MPICH, PMI and Slurm: mpirun first, as it may run in a job.
constexpr std::array<LocalVariables, 5> kLocal{{
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
}};

int parse_local(const char* variable, std::string_view text) {
  return parse_from(0, variable, text, "a rank on this machine or the number of its ranks");
}

}  // namespace

std::optional<LocalRank> find_local_rank(const EnvironmentLookup& lookup) {
  if (!has_mpi_launcher(lookup)) return LocalRank{};
  for (const auto& [rank, size] : kLocal) {
    if (!has(lookup, rank) || !has(lookup, size)) continue;
    const std::string_view count = lookup(size);
    if (count.find(',') != std::string_view::npos) continue;  // Slurm's "8(x2),4": nodes differ
    const LocalRank self{.rank = parse_local(rank, lookup(rank)),
                         .size = parse_local(size, count.substr(0, count.find("(x")))};
    if (self.rank < self.size) return self;
  }
  return std::nullopt;
}

std::optional<LauncherClaim> find_launcher(const EnvironmentLookup& lookup) {
  for (const Known& known : kKnown) {
    if (!has(lookup, known.variable)) continue;
    return LauncherClaim{known.variable, parse_from(1, known.variable, lookup(known.variable),
                                                    "the number of ranks")};
  }
  return std::nullopt;
}

bool has_mpi_launcher(const EnvironmentLookup& lookup) {
  return has(lookup, "PMIX_RANK") || has(lookup, "PMI_RANK") || has(lookup, "OMPI_COMM_WORLD_RANK");
}

void check_srun_task(const EnvironmentLookup& lookup) {
  const bool is_srun_task = has(lookup, "SLURM_STEP_ID") && has(lookup, "SLURM_PROCID");
  if (!is_srun_task || has_mpi_launcher(lookup)) return;
  fail(ExitCode::kEnvironment, "srun started task ", lookup("SLURM_PROCID"),
       " without MPI, want `srun --mpi=pmix` (`srun --mpi=list` shows what this Slurm has); or "
       "start with mpirun");
}

void check_single_process(const EnvironmentLookup& lookup, const std::string& command) {
  if (!has_mpi_launcher(lookup)) return;
  const std::optional<LauncherClaim> claim = find_launcher(lookup);
  if (!claim || claim->ranks == 1) return;
  fail(ExitCode::kEnvironment, command, ": ", claim->variable, "=", claim->ranks,
       ", want one process because all would write the same files; start it without "
       "mpirun or srun");
}

void check_launcher(const std::optional<LauncherClaim>& claim, int world_ranks) {
  if (!claim || claim->ranks == world_ranks) return;
  const char* remedy = "";
  for (const Known& known : kKnown) {
    if (claim->variable == known.variable) remedy = known.remedy;
  }
  fail(ExitCode::kEnvironment, claim->variable, "=", claim->ranks, ", but MPI found ", world_ranks,
       " ", plural(world_ranks, "rank"), ", want the same number; ", remedy);
}

}  // namespace bertha
