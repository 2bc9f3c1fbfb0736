#pragma once

#include <condition_variable>
#include <mutex>
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

/// The sentence for a rank that has waited `waited_s` for MPI to start: which rank of this machine
/// is stopped, else which are there at all.
std::string late_start_report(const std::vector<StartedRank>& here, int num_ranks,
                              const std::string& host, double waited_s);

/// Ends this process with ExitCode::kHang if MPI has not started after BERTHA_START_TIMEOUT_S
/// seconds (default 600; 0 = never): a rank that never comes keeps all others waiting. To be made
/// before MPI starts, and destroyed when it has.
///
/// Threads   has one of its own where several ranks start.
/// Errors    Error(kEnvironment) where the variable is not a number of seconds.
class StartLimit {
 public:
  StartLimit(const EnvironmentLookup& lookup, int num_ranks);
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;
  ~StartLimit();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace bertha
