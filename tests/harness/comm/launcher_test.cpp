#include "harness/comm/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

using Table = std::map<std::string, std::string>;

/// An environment of these variables.
EnvironmentLookup lookup_in(const Table& table) {
  return [&table](const char* variable) -> const char* {
    const auto found = table.find(variable);
    return found == table.end() ? nullptr : found->second.c_str();
  };
}

/// The message of the error that a world of `ranks` gets, or "" when it is accepted.
std::string refusal(const Table& table, int ranks) {
  return error_of([&] { check_launcher(find_launcher(lookup_in(table)), ranks); },
                  ExitCode::kEnvironment);
}

TEST(Launcher, NoLauncherMeansAnyWorldIsRight) {
  EXPECT_EQ(refusal({}, 1), "no error");
  EXPECT_EQ(refusal({{"SLURM_NTASKS", ""}}, 1), "no error");
}

TEST(Launcher, SlurmTasksInAWorldOfOneAreRefusedWithTheWayOut) {
  EXPECT_THAT(refusal({{"SLURM_NTASKS", "8"}}, 1),
              AllOf(HasSubstr("SLURM_NTASKS=8, but MPI found 1 rank"), HasSubstr("srun --mpi=pmix"),
                    HasSubstr("unset SLURM_NTASKS")));
}

TEST(Launcher, EveryLauncherThatCountsOtherwiseIsRefused) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS"}) {
    EXPECT_THAT(refusal({{variable, "4"}}, 1), HasSubstr(variable)) << variable;
    EXPECT_THAT(refusal({{variable, "4"}}, 3), HasSubstr("3 ranks")) << variable;
    EXPECT_EQ(refusal({{variable, "4"}}, 4), "no error") << variable;
  }
}

TEST(Launcher, ExplicitMpirunDecidesInsideALargerAllocation) {
  const Table table{{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "8"}, {"WORLD_SIZE", "16"}};
  EXPECT_EQ(refusal(table, 2), "no error");
  EXPECT_THAT(refusal(table, 8), HasSubstr("OMPI_COMM_WORLD_SIZE=2"));
}

TEST(Launcher, SrunTasksThatMpiCannotConnectAreRefusedWithTheWayOut) {
  const auto check = [](const Table& table) { check_srun_task(lookup_in(table)); };
  Table task{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}};
  EXPECT_THAT(error_of([&] { check(task); }, ExitCode::kEnvironment),
              AllOf(HasSubstr("task 3 without MPI"), HasSubstr("srun --mpi=pmix")));
  for (const char* variable : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    Table connected = task;
    connected[variable] = "0";
    EXPECT_NO_THROW(check(connected)) << variable;
  }
  task.erase("SLURM_STEP_ID");  // the batch script itself
  EXPECT_NO_THROW(check(task));
  EXPECT_NO_THROW(check({}));
}

TEST(Launcher, SeveralProcessesThatWouldWriteTheSameFilesAreRefused) {
  const auto check = [](const Table& table) {
    return error_of([&] { check_single_process(lookup_in(table), "data vocab"); },
                    ExitCode::kEnvironment);
  };
  EXPECT_THAT(check({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
              HasSubstr("data vocab: OMPI_COMM_WORLD_SIZE=2, want one process"));
  EXPECT_THAT(check({{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "8"}}), HasSubstr("SLURM_NTASKS=8"));
  EXPECT_EQ(check({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "no error");
  EXPECT_EQ(check({{"SLURM_NTASKS", "8"}}), "no error") << "a batch script itself";
}

TEST(Launcher, OnlyWhatConnectsRanksIsALauncherOfMpi) {
  for (const char* given : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    EXPECT_TRUE(has_mpi_launcher(lookup_in({{given, "0"}}))) << given;
  }
  EXPECT_FALSE(has_mpi_launcher(lookup_in({{"SLURM_NTASKS", "1"}})));
}

std::optional<LocalRank> local_rank_in(const Table& table) {
  return find_local_rank(lookup_in(table));
}

void expect_local_rank(const Table& table, int rank, int size) {
  const std::optional<LocalRank> found = local_rank_in(table);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, rank);
  EXPECT_EQ(found->size, size);
}

TEST(LocalRank, IsAloneWithoutALauncherOfMpi) {
  expect_local_rank({}, 0, 1);
  // A batch script itself.
  expect_local_rank({{"SLURM_LOCALID", "0"}, {"SLURM_NTASKS_PER_NODE", "8"}}, 0, 1);
}

TEST(LocalRank, IsWhatTheClosestLauncherSays) {
  Table table{{"PMIX_RANK", "5"}};
  EXPECT_FALSE(local_rank_in(table));
  table["SLURM_LOCALID"] = "3";
  EXPECT_FALSE(local_rank_in(table));
  table["SLURM_NTASKS_PER_NODE"] = "8";
  expect_local_rank(table, 3, 8);
  table["SLURM_STEP_TASKS_PER_NODE"] = "4(x2)";
  expect_local_rank(table, 3, 4);
  for (const auto& [rank, size] : {std::pair("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
                                   {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}}) {
    table[rank] = "1";
    table[size] = "2";
    expect_local_rank(table, 1, 2);
  }
  EXPECT_FALSE(
      local_rank_in({{"PMI_RANK", "2"}, {"PMI_LOCAL_RANK", "2"}, {"PMI_LOCAL_SIZE", "2"}}));
}

TEST(LocalRank, IsNotKnownWhenSlurmCountsNodesApart) {
  Table table{{"PMI_RANK", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "8"}};
  expect_local_rank(table, 0, 8);
  table["SLURM_STEP_TASKS_PER_NODE"] = "8(x2)";
  expect_local_rank(table, 0, 8);
  table["SLURM_STEP_TASKS_PER_NODE"] = "8(x2),4";
  EXPECT_FALSE(local_rank_in(table));
}

TEST(LocalRank, ValuesThatAreNoNumberAreRefused) {
  for (const char* rank :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"}) {
    for (const char* text : {"a[$(touch ran)]", "-1", "1x"}) {
      const Table table{
          {"PMI_RANK", "0"},       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"},
          {"PMI_LOCAL_SIZE", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "2"},  {rank, text}};
      EXPECT_THAT(error_of([&] { local_rank_in(table); }, ExitCode::kEnvironment),
                  StartsWith(std::string(rank) + "='" + text + "', want"));
    }
  }
  const Table size{{"PMI_RANK", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "two"}};
  EXPECT_THAT(error_of([&] { local_rank_in(size); }, ExitCode::kEnvironment),
              StartsWith("SLURM_STEP_TASKS_PER_NODE='two', want"));
}

TEST(Launcher, ValuesThatAreNoCountAreRefused) {
  for (const char* text : {"eight", "8x", "0", "-1", "99999999999"}) {
    EXPECT_THAT(refusal({{"SLURM_NTASKS", text}}, 1), HasSubstr(text));
  }
}

}  // namespace
}  // namespace bertha
