#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "harness/comm/gpu_state.h"

namespace bertha {

/// Power and SM clock of a GPU at some time in the last second. 0 = unknown.
struct GpuLoad {
  double power_watts = 0;  // mean over the previous second
  int64_t sm_mhz = 0;
};

/// Reads the state of one GPU once a second, outside the training threads.
///
/// Threads   starts one if there is a GPU; load() from any, without waiting for the driver.
/// Errors    std::system_error if the system refuses that thread.
class GpuMonitor {
 public:
  /// bus_id: as for read_gpu_counters(); "" = no GPU, all values unknown.
  explicit GpuMonitor(const std::string& bus_id, double every_seconds = 1);

  GpuLoad load() const;

 private:
  void watch(const std::string& bus_id, double every_seconds, const std::stop_token& stop);

  mutable std::mutex mutex_;
  GpuLoad load_;
  std::jthread thread_;  // last member: it uses the others
};

}  // namespace bertha
