#include "harness/comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "harness/comm/rank_failure.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr double kCheckInterval_s = 1;

double interval_s(const Watchdog::Options& options) {
  const double quarter = options.timeout_s > 0 ? options.timeout_s / 4 : kCheckInterval_s;
  return options.check ? std::min(quarter, kCheckInterval_s) : quarter;
}

}  // namespace

Watchdog::Watchdog(Options options) : options_(std::move(options)) {
  if (options_.timeout_s > 0 || options_.check) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::beat(int64_t step, const char* phase) {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ = step;
  phase_ = phase;
  ++beats_;
}

std::optional<Error> Watchdog::look(double silence_s) const {
  if (options_.check) {
    try {
      options_.check();
    } catch (const Error& error) {
      return error;
    }
  }
  if (options_.timeout_s <= 0 || silence_s < options_.timeout_s) return std::nullopt;
  return Error(ExitCode::kHang, concat(options_.rank_name, " has stood still for ",
                                       options_.timeout_s, " s in step ", step_, ", phase ", phase_,
                                       "; look for a slow disk, a dead peer or a stopped process"));
}

// Looks up every now and then instead of being woken at every beat.
void Watchdog::watch() {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const Seconds interval(interval_s(options_));
  std::unique_lock<std::mutex> lock(mutex_);
  Clock::time_point changed_at = Clock::now();
  int64_t seen_beats = beats_;
  while (!changed_.wait_for(lock, interval, [this] { return stopping_; })) {
    if (beats_ != seen_beats) {
      seen_beats = beats_;
      changed_at = Clock::now();
    }
    const std::optional<Error> failure = look(Seconds(Clock::now() - changed_at).count());
    if (!failure) continue;
    lock.unlock();
    options_.on_failure(*failure);
    return;
  }
}

Watchdog::Options watchdog_of(World& world, double timeout_s, std::function<void()> check) {
  return {.timeout_s = timeout_s,
          .rank_name = rank_name(world),
          .check = std::move(check),
          .on_failure = [&world](const Error& error) {
            end_all_ranks(world, error.code, error.what());
          }};
}

}  // namespace bertha
