#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// What the driver says of one GPU. 0 = it does not say.
struct GpuState {
  int64_t pcie_generation = 0;  // now; a GPU without work lowers it
  int64_t most_pcie_generation = 0;
  int64_t pcie_lanes = 0;
  int64_t most_pcie_lanes = 0;
  int64_t sm_mhz = 0;
  int64_t most_sm_mhz = 0;
  uint64_t throttle_reasons = 0;    // bits of nvmlClocksThrottleReason...
  uint64_t uncorrected_errors = 0;  // of its memory (ECC), since the driver was loaded
  uint64_t energy_mj = 0;           // since the driver was loaded; it counts every some 20 ms
  std::string unread = "";          // why nothing is known; "" = it was read
};

/// Asks NVML, the driver's library, for the state of the GPU at a PCI address ("0000:1b:00.0").
GpuState read_gpu_state(const std::string& bus_id);

/// What changes from moment to moment, in two calls of the driver. 0 = it does not say.
struct GpuCounters {
  int64_t sm_mhz = 0;
  uint64_t energy_mj = 0;
};
GpuCounters read_gpu_counters(const std::string& bus_id);

/// What is known of a GPU after another look: the fastest link, since a GPU without work lowers it,
/// all reasons for low clocks, and the rest as it is now.
GpuState combined(const GpuState& before, const GpuState& now);

}  // namespace bertha
