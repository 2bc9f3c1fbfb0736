#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace bertha {

/// Waits for the given time or until a stop is requested; returns whether it was.
inline bool stops_within(const std::stop_token& stop, std::chrono::duration<double> time) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
  return stop.stop_requested();
}

}  // namespace bertha
