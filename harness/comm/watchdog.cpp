#include "harness/comm/watchdog.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "harness/comm/rank_failure.h"
#include "harness/comm/rank_name.h"
#include "harness/comm/stops_within.h"
#include "kernels/base/log.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// After the loss of a rank, a launcher allows the others one second, Open MPI 5 half a second, in
// which they must report.
constexpr double kLongestInterval_s = 0.25;

// Cap on the elapsed time per poll: a longer gap means that this process was suspended, and
// possibly the others too.
constexpr double kLongestStep_s = 1;

// Time for the other ranks to log their stacks before this one ends all: ranks detect a hang one
// after another, within the interval at which nodes send their statuses.
constexpr std::chrono::seconds kStacksWait{2};

// A node that is silent for this time after the launcher began to end the job is considered lost:
// nodes send their statuses about once a second. launch/run_mpirun.sh allows ranks four seconds.
constexpr double kLostNode_s = 2;

double interval_s(double timeout_s) {
  return timeout_s > 0 ? std::min(timeout_s / 8, kLongestInterval_s) : kLongestInterval_s;
}

bool is_signed_off(const RankStatus& status) { return status.ticks < 0; }

bool is_running(int64_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

RankError lost_rank(const RankStatus& lost, int num_ranks) {
  return RankError(
      kLostRank,
      concat(
          rank_name(lost.rank, num_ranks, lost.host), " (process ", lost.process,
          ") ended without a message, last seen in step ", lost.step, ", phase ", name(lost.phase),
          ": unless a message above says why, it was killed, by the kernel because memory ran out "
          "(see dmesg) or by signal 9 from another process. Run again to resume from the last "
          "checkpoint"));
}

RankError lost_nodes(const std::vector<RankStatus>& lost) {
  std::vector<int> ranks;
  std::string hosts;
  for (const RankStatus& status : lost) {
    ranks.push_back(status.rank);
    if (hosts.find(status.host) == std::string::npos) {
      hosts += concat(hosts.empty() ? "" : ", ", status.host);
    }
  }
  const int64_t count = std::ssize(ranks);
  return RankError(
      kLostRank,
      concat(
          plural(count, "rank"), " ", rank_list(ranks), " on ", hosts, ", last seen in step ",
          lost.front().step, ", phase ", name(lost.front().phase), ", ",
          count == 1 ? "has" : "have",
          " not answered since the launcher began to end this job: the node "
          "or its ranks have failed. Run again, without it if necessary, to resume from the last "
          "checkpoint"));
}

}  // namespace

/// The thread's memory between two polls of the board.
class Watchdog::View {
 public:
  explicit View(const RankBoard& board) : own_rank_(board.rank()) {}

  void update(const std::vector<RankStatus>& statuses, int64_t progress) {
    const Clock::time_point clock = Clock::now();
    now_s_ += std::min(Seconds(clock - clock_).count(), kLongestStep_s);
    clock_ = clock;
    ranks_.resize(statuses.size(), {.heard_s = now_s_, .moved_s = now_s_});
    for (size_t i = 0; i < statuses.size(); ++i) {
      const RankStatus& status = statuses[i];
      Seen& seen = ranks_[i];
      if (status.ticks != seen.ticks || is_signed_off(status)) seen.heard_s = now_s_;
      seen.ticks = status.ticks;
      const int64_t moves = status.moves + status.background_moves + status.beats;
      if (moves != seen.moves) seen.moved_s = now_s_;
      seen.moves = moves;
    }
    if (progress != progress_) moved_s_ = now_s_;
    progress_ = progress;
  }

  /// Seconds since any rank made progress.
  double still_s() const { return now_s_ - moved_s_; }

  std::vector<Watched> watched(const std::vector<RankStatus>& statuses) const {
    std::vector<Watched> watched;
    for (size_t i = 0; i < statuses.size(); ++i) {
      watched.push_back({.status = statuses[i],
                         .silent_s = now_s_ - ranks_[i].heard_s,
                         .still_s = now_s_ - ranks_[i].moved_s});
    }
    return watched;
  }

  /// Ranks of other nodes that have not answered since the launcher began to end the job. Empty if
  /// a rank has reported its own end.
  std::vector<RankStatus> lost_elsewhere(const std::vector<RankStatus>& statuses, bool is_ending) {
    if (!is_ending) ending_since_s_ = now_s_;
    std::vector<RankStatus> lost;
    if (now_s_ - ending_since_s_ < kLostNode_s) return lost;
    if (std::ranges::any_of(statuses, is_signed_off)) return lost;
    for (size_t i = 0; i < statuses.size(); ++i) {
      const bool is_silent = now_s_ - ranks_[i].heard_s >= kLostNode_s;
      if (!statuses[i].is_here && is_silent) lost.push_back(statuses[i]);
    }
    return lost;
  }

  /// The next rank of this node, if its process has ended. Each rank checks one other, so that a
  /// rank remains to report unless all have ended.
  const RankStatus* lost_neighbour(const std::vector<RankStatus>& statuses) const {
    const RankStatus* next = nullptr;
    for (const RankStatus& status : statuses) {
      if (!status.is_here || status.rank == own_rank_) continue;
      const bool is_after = status.rank > own_rank_;
      if (next == nullptr || (is_after && next->rank < own_rank_)) next = &status;
    }
    return next == nullptr || is_running(next->process) ? nullptr : next;
  }

 private:
  struct Seen {
    int64_t ticks = 0;
    double heard_s = 0;
    int64_t moves = 0;
    double moved_s = 0;
  };
  int own_rank_;
  std::vector<Seen> ranks_;
  double ending_since_s_ = 0;
  int64_t progress_ = -1;
  double now_s_ = 0;
  double moved_s_ = 0;
  Clock::time_point clock_ = Clock::now();
};

Watchdog::Watchdog(RankBoard& board, Options options)
    : board_(board),
      options_(std::move(options)),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

Watchdog::~Watchdog() {
  thread_.request_stop();
  thread_.join();
  // This rank is further than the others, so its silence does not mean anything.
  RankStatus last = board_.status(board_.rank());
  last.ticks = kSignedOff;
  ++last.moves;
  board_.store(last);
}

void Watchdog::set_check(std::function<void()> check) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_ = std::move(check);
}

void Watchdog::poll(View& view) const {
  if (check_) check_();
  if (options_.before_poll) options_.before_poll();
  const std::vector<RankStatus> statuses = board_.read();
  view.update(statuses, board_.progress());
  if (const RankStatus* lost = view.lost_neighbour(statuses)) {
    throw lost_rank(*lost, options_.num_ranks);
  }
  const auto lost = view.lost_elsewhere(statuses, options_.is_ended_by_launcher());
  if (!lost.empty()) throw lost_nodes(lost);
  if (options_.timeout_s <= 0 || view.still_s() < options_.timeout_s) return;
  const HangReport report =
      hang_report(view.watched(statuses), options_.num_ranks, options_.timeout_s);
  log_stacks(report);
  if (options_.num_ranks > 1) std::this_thread::sleep_for(kStacksWait);
  throw RankError(ExitCode::kHang, report.message);
}

// Each late rank logs its own stack. If it cannot, the first other rank of its node logs the
// kernel's report. If no rank is late, the first rank of each node represents all.
void Watchdog::log_stacks(const HangReport& report) const {
  const std::vector<RankStatus>& late = report.late;
  const auto is_late = [&](int rank) {
    return std::ranges::find(late, rank, &RankStatus::rank) != late.end();
  };
  const std::vector<RankStatus> statuses = board_.read();
  const auto first = std::ranges::find_if(statuses, [&](const RankStatus& status) {
    return status.is_here && !(report.are_silent && is_late(status.rank));
  });
  const bool is_first = first != statuses.end() && first->rank == board_.rank();
  const auto log = [&](const RankStatus& status, const std::string& text) {
    log_line(LogLevel::kWarning, concat(rank_name(status.rank, options_.num_ranks, status.host),
                                        " (process ", status.process, "), ", text));
  };
  if (!report.are_silent) {
    if (late.empty() ? is_first : is_late(board_.rank())) {
      log(board_.status(board_.rank()), "stack of its main thread:\n" + stack_.text());
    }
    return;
  }
  for (const RankStatus& status : late) {
    if (is_first && status.is_here) {
      log(status, "which cannot show its stack: " + process_text(status.process));
    }
  }
}

// Polls from time to time instead of being woken by every beat.
void Watchdog::watch(const std::stop_token& stop) {
  prctl(PR_SET_NAME, "watchdog");  // for debuggers and top
  const Seconds interval(interval_s(options_.timeout_s));
  View view(board_);
  while (!stops_within(stop, interval)) {
    std::unique_lock<std::mutex> lock(mutex_);
    board_.tick();
    try {
      poll(view);
    } catch (const Error& failure) {
      lock.unlock();
      options_.on_failure(failure);  // may use the current exception
      return;
    }
  }
}

std::unique_ptr<Watchdog> make_watchdog(World& world, double timeout_s,
                                        std::function<bool()> is_ended_by_launcher) {
  return std::make_unique<Watchdog>(
      world.board(), Watchdog::Options{.timeout_s = timeout_s,
                                       .num_ranks = world.size(),
                                       .before_poll = [&world] { world.relay_status(); },
                                       .is_ended_by_launcher = std::move(is_ended_by_launcher),
                                       .on_failure =
                                           [&world](const Error&) {
                                             end_all_ranks(world, std::current_exception());
                                           }});
}

}  // namespace bertha
