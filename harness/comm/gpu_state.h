#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// The driver's report on a GPU. 0 = not reported.
struct GpuState {
  int64_t pcie_generation = 0;  // current; an idle GPU lowers it
  int64_t max_pcie_generation = 0;
  int64_t pcie_lanes = 0;
  int64_t max_pcie_lanes = 0;
  int64_t sm_mhz = 0;
  int64_t max_sm_mhz = 0;
  uint64_t throttle_reasons = 0;    // bits of nvmlClocksThrottleReason...
  uint64_t uncorrected_errors = 0;  // ECC errors of its memory since the driver was loaded
  uint64_t energy_mj = 0;           // since the driver was loaded; updated about every 20 ms
  std::string unread = "";          // why nothing could be read; "" = it was read
};

/// Queries NVML, the driver's library, for the GPU at a PCI address ("0000:1b:00.0").
GpuState read_gpu_state(const std::string& bus_id);

/// Values that change all the time, read with two calls of the driver. 0 = not reported.
struct GpuCounters {
  int64_t sm_mhz = 0;
  uint64_t energy_mj = 0;
};
GpuCounters read_gpu_counters(const std::string& bus_id);

/// Combines two reports on a GPU: the fastest link, because an idle GPU lowers it, all reasons for
/// low clocks, and the latest of the other values.
GpuState combined(const GpuState& before, const GpuState& now);

}  // namespace bertha
