#include "harness/comm/gpu_monitor.h"

#include <chrono>

namespace bertha {

using Clock = std::chrono::steady_clock;

GpuMonitor::GpuMonitor(const std::string& bus_id, double every_seconds) {
  if (bus_id.empty()) return;
  thread_ = std::thread([this, bus_id, every_seconds] { watch(bus_id, every_seconds); });
}

GpuMonitor::~GpuMonitor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

GpuLoad GpuMonitor::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

void GpuMonitor::watch(const std::string& bus_id, double every_seconds) {
  GpuCounters before = read_gpu_counters(bus_id);
  Clock::time_point since = Clock::now();
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::duration<double>(every_seconds);
  while (!changed_.wait_for(lock, pause, [this] { return stopping_; })) {
    lock.unlock();
    const GpuCounters counters = read_gpu_counters(bus_id);
    const Clock::time_point now = Clock::now();
    const double millijoules = static_cast<double>(counters.energy_mj - before.energy_mj);
    const double seconds = std::chrono::duration<double>(now - since).count();
    const bool counts = before.energy_mj > 0 && counters.energy_mj >= before.energy_mj;
    lock.lock();
    load_ = {.power_watts = counts ? millijoules / 1e3 / seconds : 0, .sm_mhz = counters.sm_mhz};
    before = counters;
    since = now;
  }
}

}  // namespace bertha
