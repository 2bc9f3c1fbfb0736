#pragma once

#include <string>
#include <thread>
#include <vector>

#include "harness/comm/launcher.h"

namespace bertha {

/// A process of this machine that the launcher started for the same run.
struct StartedRank {
  int rank = 0;
  int process = 0;
  bool is_stopped = false;  // by a signal, or by a debugger
};

/// The sentence for a rank that has waited `waited_s` for what the others do not all do, "started
/// MPI": which rank of this machine is stopped, else which are there at all.
std::string late_start_report(const std::vector<StartedRank>& here, int num_ranks,
                              const std::string& host, double waited_s,
                              const std::string& what = "started MPI");

/// Ends this process with ExitCode::kHang if it lives for more than BERTHA_START_TIMEOUT_S seconds
/// (default 600; 0 = never): a rank that never comes keeps all others waiting. For what ranks do
/// together before their watchdogs run, and after.
///
/// Threads   has one of its own where several ranks start.
/// Errors    Error(kEnvironment) where the variable is not a number of seconds.
class StartLimit {
 public:
  StartLimit(const EnvironmentLookup& lookup, int num_ranks, std::string what = "started MPI");

 private:
  std::jthread thread_;
};

}  // namespace bertha
