#pragma once

#include <string>
#include <thread>
#include <vector>

#include "harness/comm/launcher.h"

namespace bertha {

/// A process on this machine that the launcher started for the same run.
struct StartedRank {
  int rank = 0;
  int process = 0;
  bool is_stopped = false;  // by a signal, or by a debugger
};

/// The message of a rank that has waited `waited_s` because not all others have done `what`,
/// "started MPI": which rank of this machine is stopped, else which ranks it has.
std::string late_start_report(const std::vector<StartedRank>& here, int num_ranks,
                              const std::string& host, double waited_s,
                              const std::string& what = "started MPI");

/// Ends this process with ExitCode::kHang if this object lives for more than BERTHA_START_TIMEOUT_S
/// seconds (default 600; 0 = never), because all ranks wait for one that never arrives. For
/// collective work before the watchdogs run, and after they have ended.
///
/// Threads   starts one if there are several ranks.
/// Errors    Error(kEnvironment) if the variable is not a number of seconds.
class StartLimit {
 public:
  StartLimit(const EnvironmentLookup& lookup, int num_ranks, std::string what = "started MPI");

 private:
  std::jthread thread_;
};

}  // namespace bertha
