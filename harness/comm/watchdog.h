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

/// The exit code of a run that lost a rank without an error message, as of a process killed by
/// signal 9.
constexpr ExitCode kLostRank{128 + 9};

/// Ends a run that cannot go on by itself. No rank that is known here has made progress for
/// `timeout_s`: kHang, with the ranks that have not arrived (hang_report.h), after their stacks
/// have been logged. A rank of this node is gone, or all of another node while the launcher ends
/// the job: kLostRank. Communication has failed while this rank waits for the device: what the
/// check throws.
///
/// Threads   has one of its own; the thread that makes it is the one whose stack is logged.
/// Errors    std::system_error when the system refuses that thread.
class Watchdog {
 public:
  struct Options {
    double timeout_s = 0;                    // 0 = no progress is never a hang
    int num_ranks = 1;                       // of the world
    std::function<void()> before_look = {};  // on the watchdog's thread
    std::function<bool()> is_ended_by_launcher = [] { return false; };
    /// On the watchdog's thread, once, while it handles the exception; a RankError unless it comes
    /// from the check.
    std::function<void(const Error& error)> on_failure = {};
  };

  /// `board` and what the options refer to outlive this.
  Watchdog(RankBoard& board, Options options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// From now on `check` is called every now and then. It throws when this rank cannot go on, and
  /// must not block.
  void set_check(std::function<void()> check);

 private:
  class View;
  void watch(const std::stop_token& stop);
  void look(View& view) const;  // throws what ends the run
  void log_stacks(const HangReport& report) const;

  RankBoard& board_;
  Options options_;
  std::mutex mutex_;
  std::function<void()> check_;
  ThreadStack stack_;
  std::jthread thread_;  // last: it uses what is above
};

/// One that, on a failure, logs it and ends all ranks with its code. `is_ended_by_launcher` says
/// whether the launcher has sent the signal that precedes the end of the job.
std::unique_ptr<Watchdog> make_watchdog(
    World& world, double timeout_s,
    std::function<bool()> is_ended_by_launcher = [] { return false; });

}  // namespace bertha
