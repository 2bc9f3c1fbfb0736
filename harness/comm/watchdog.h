#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "harness/comm/world.h"
#include "kernels/base/error.h"

namespace bertha {

/// Ends a run that cannot go on by itself: its rank has not beaten for `timeout_s`, for example
/// because a peer hangs, or communication has failed while the rank waits for the device.
///
/// Threads   has one of its own; beat() from any.
class Watchdog {
 public:
  struct Options {
    double timeout_s = 0;  // 0 = silence is never a hang
    std::string rank_name = "";
    /// Throws when the rank cannot go on; empty = never asked. Must not block.
    std::function<void()> check = {};
    /// On the watchdog's thread, once: after too long a silence (kHang), or what `check` threw.
    std::function<void(const Error& error)> on_failure = {};
  };

  explicit Watchdog(Options options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// A sign of life: `phase` of `step` begins.
  void beat(int64_t step, const char* phase);

 private:
  void watch();
  std::optional<Error> look(double silence_s) const;

  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t step_ = 0;
  std::string phase_ = "start";
  int64_t beats_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses what is above
};

/// The options that, on a failure, log it and end all ranks with its code.
Watchdog::Options watchdog_of(World& world, double timeout_s, std::function<void()> check);

}  // namespace bertha
