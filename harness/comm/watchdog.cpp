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

#include "harness/comm/hang_report.h"
#include "harness/comm/rank_failure.h"
#include "harness/comm/rank_name.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A launcher gives the other ranks a second when one is lost: they report within it.
constexpr double kLongestInterval_s = 0.25;

// More than this between two looks counts no further: this process itself was stopped, and the
// others perhaps as well.
constexpr double kLongestStep_s = 1;

// Of a rank whose watchdog has ended with its work.
constexpr int64_t kSignedOff = -1;

double interval_s(double timeout_s) {
  return timeout_s > 0 ? std::min(timeout_s / 8, kLongestInterval_s) : kLongestInterval_s;
}

bool is_running(int64_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

RankError lost_rank(const RankStatus& lost, int num_ranks) {
  return RankError(
      kLostRank,
      concat(rank_name(lost.rank, num_ranks, lost.host), " (process ", lost.process,
             ") is gone without a word, last seen in step ", lost.step, ", phase ",
             name(lost.phase),
             ": it was killed; the kernel does so when memory runs out (dmesg shows it), "
             "or another process sent signal 9. Run again to go on from the last checkpoint"));
}

}  // namespace

/// What the thread remembers between two looks at the board.
class Watchdog::View {
 public:
  explicit View(const RankBoard& board) : own_rank_(board.rank()) {}

  void update(const std::vector<RankStatus>& statuses, int64_t progress) {
    const Clock::time_point clock = Clock::now();
    now_s_ += std::min(Seconds(clock - clock_).count(), kLongestStep_s);
    clock_ = clock;
    ranks_.resize(statuses.size(), {.ticks = 0, .heard_s = now_s_});
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i].ticks != ranks_[i].ticks || statuses[i].ticks == kSignedOff) {
        ranks_[i] = {.ticks = statuses[i].ticks, .heard_s = now_s_};
      }
    }
    if (progress != progress_) moved_s_ = now_s_;
    progress_ = progress;
  }

  /// Since any rank made progress.
  double still_s() const { return now_s_ - moved_s_; }

  std::vector<Watched> watched(const std::vector<RankStatus>& statuses) const {
    std::vector<Watched> watched;
    for (size_t i = 0; i < statuses.size(); ++i) {
      watched.push_back({.status = statuses[i], .silent_s = now_s_ - ranks_[i].heard_s});
    }
    return watched;
  }

  /// The next rank of this node, if its process is gone. Each rank looks at one other, so that a
  /// rank remains to report unless all are gone.
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
  struct Heard {
    int64_t ticks;
    double heard_s;
  };
  int own_rank_;
  std::vector<Heard> ranks_;
  int64_t progress_ = -1;
  double now_s_ = 0;
  double moved_s_ = 0;
  Clock::time_point clock_ = Clock::now();
};

Watchdog::Watchdog(RankBoard& board, Options options)
    : board_(board), options_(std::move(options)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  // It has come further than the others, and its silence is no sign of anything.
  RankStatus last = board_.status(board_.rank());
  last.ticks = kSignedOff;
  ++last.moves;
  board_.store(last);
}

void Watchdog::set_check(std::function<void()> check) {
  const std::lock_guard<std::mutex> lock(mutex_);
  check_ = std::move(check);
}

void Watchdog::look(View& view) const {
  if (check_) check_();
  if (options_.before_look) options_.before_look();
  const std::vector<RankStatus> statuses = board_.read();
  view.update(statuses, board_.progress());
  if (const RankStatus* lost = view.lost_neighbour(statuses)) {
    throw lost_rank(*lost, options_.num_ranks);
  }
  if (options_.timeout_s <= 0 || view.still_s() < options_.timeout_s) return;
  throw RankError(ExitCode::kHang,
                  hang_report(view.watched(statuses), options_.num_ranks, options_.timeout_s));
}

// Looks up every now and then instead of being woken at every beat.
void Watchdog::watch() {
  prctl(PR_SET_NAME, "watchdog");  // for debuggers and top
  const Seconds interval(interval_s(options_.timeout_s));
  View view(board_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return stopping_; })) {
    board_.tick();
    try {
      look(view);
    } catch (const Error& failure) {
      lock.unlock();
      options_.on_failure(failure);  // which may ask for the current exception
      return;
    }
  }
}

std::unique_ptr<Watchdog> make_watchdog(World& world, double timeout_s) {
  return std::make_unique<Watchdog>(
      world.board(), Watchdog::Options{.timeout_s = timeout_s,
                                       .num_ranks = world.size(),
                                       .before_look = [&world] { world.exchange_status(); },
                                       .on_failure =
                                           [&world](const Error&) {
                                             end_all_ranks(world, std::current_exception());
                                           }});
}

}  // namespace bertha
