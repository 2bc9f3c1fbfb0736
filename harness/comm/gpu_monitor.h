#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "harness/comm/gpu_state.h"

namespace bertha {

/// What a GPU draws and how fast its SMs run, as of some moment of the last second. 0 = not known.
struct GpuLoad {
  double power_watts = 0;  // mean over the second before
  int64_t sm_mhz = 0;
};

/// Reads the state of one GPU once a second, apart from the threads that train.
///
/// Threads   has one of its own where there is a GPU; load() from any, without waiting for the
///           driver.
/// Errors    std::system_error when the system refuses that thread.
class GpuMonitor {
 public:
  /// bus_id: as for read_gpu_counters(); "" = without a GPU, nothing is known.
  explicit GpuMonitor(const std::string& bus_id, double every_seconds = 1);

  GpuLoad load() const;

 private:
  void watch(const std::string& bus_id, double every_seconds, const std::stop_token& stop);

  mutable std::mutex mutex_;
  GpuLoad load_;
  std::jthread thread_;  // last: it uses what is above
};

}  // namespace bertha
