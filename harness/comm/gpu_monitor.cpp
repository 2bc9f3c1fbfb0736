#include "harness/comm/gpu_monitor.h"

#include <chrono>

#include "harness/comm/stops_within.h"

namespace bertha {

using Clock = std::chrono::steady_clock;

GpuMonitor::GpuMonitor(const std::string& bus_id, double every_seconds) {
  if (bus_id.empty()) return;
  thread_ = std::jthread([this, bus_id, every_seconds](const std::stop_token& stop) {
    watch(bus_id, every_seconds, stop);
  });
}

GpuLoad GpuMonitor::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void GpuMonitor::watch(const std::string& bus_id, double every_seconds,
                       const std::stop_token& stop) {
  GpuCounters before = read_gpu_counters(bus_id);
  Clock::time_point since = Clock::now();
  while (!stops_within(stop, std::chrono::duration<double>(every_seconds))) {
    const GpuCounters counters = read_gpu_counters(bus_id);
    const Clock::time_point now = Clock::now();
    const double millijoules = static_cast<double>(counters.energy_mj - before.energy_mj);
    const double seconds = std::chrono::duration<double>(now - since).count();
    const bool counts = before.energy_mj > 0 && counters.energy_mj >= before.energy_mj;
    const std::lock_guard lock(mutex_);
    load_ = {.power_watts = counts ? millijoules / 1e3 / seconds : 0, .sm_mhz = counters.sm_mhz};
    before = counters;
    since = now;
  }
}

}  // namespace bertha
