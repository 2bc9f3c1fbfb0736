#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "harness/comm/hang_report.h"
#include "harness/comm/rank_board.h"
#include "harness/comm/thread_stack.h"
#include "harness/comm/world.h"
#include "kernels/base/error.h"

namespace bertha {

/// The exit code of a run that lost a rank without an error message, as for a process killed by
/// signal 9.
constexpr ExitCode kLostRank{128 + 9};

/// Ends a run that cannot continue:
///   - if no known rank has made progress for `timeout_s`: kHang, with the ranks that have not
///     arrived (hang_report.h), after logging their stacks;
///   - if a rank of this node has ended, or all of another node while the launcher ends the job:
///     kLostRank;
///   - if communication has failed while this rank waits for the device: the error of the check.
///
/// Threads   starts one; logs the stack of the thread that constructs it.
/// Errors    std::system_error if the system refuses that thread.
class Watchdog {
 public:
  struct Options {
    double timeout_s = 0;                    // 0 = no progress is never a hang
    int num_ranks = 1;                       // of the world
    std::function<void()> before_poll = {};  // on the watchdog's thread
    std::function<bool()> is_ended_by_launcher = [] { return false; };
    /// Called once on the watchdog's thread, while it handles the exception; a RankError unless it
    /// comes from the check.
    std::function<void(const Error& error)> on_failure = {};
  };

  /// `board` and all objects that the options refer to must outlive this.
  Watchdog(RankBoard& board, Options options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// From now on `check` is called from time to time. It throws if this rank cannot continue, and
  /// must not block.
  void set_check(std::function<void()> check);

 private:
  class View;
  void watch(const std::stop_token& stop);
  void poll(View& view) const;  // throws the error that ends the run
  void log_stacks(const HangReport& report) const;

  RankBoard& board_;
  Options options_;
  std::mutex mutex_;
  std::function<void()> check_;
  ThreadStack stack_;
  std::jthread thread_;  // last member: it uses the others
};

/// A watchdog that logs a failure and ends all ranks with its code. `is_ended_by_launcher` returns
/// whether the launcher has sent the signal that precedes the end of the job.
std::unique_ptr<Watchdog> make_watchdog(
    World& world, double timeout_s,
    std::function<bool()> is_ended_by_launcher = [] { return false; });

}  // namespace bertha
