#include "harness/comm/gpu_state.h"

#include <dlfcn.h>

#include <algorithm>

#include "kernels/base/error.h"

// NVML comes with the driver, its header with a package that builds rarely have: these are its
// declarations, which stay as they are from version to version of the driver.
namespace bertha {
namespace {

struct Gpu;  // nvmlDevice_t points to it
using Init = int();
using FindGpu = int(const char* bus_id, Gpu** found);
using ReadNumber = int(Gpu*, unsigned* value);
using ReadClock = int(Gpu*, int domain, unsigned* value);
using ReadReasons = int(Gpu*, unsigned long long* bits);
using ReadErrors = int(Gpu*, int kind, int counter, unsigned long long* count);
using ReadEnergy = int(Gpu*, unsigned long long* millijoules);
constexpr int kClockOfSms = 1;
constexpr int kUncorrected = 1;
constexpr int kSinceDriverStart = 0;

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// The value that a function of NVML writes; 0 where the driver lacks it or refuses.
template <class Function, class Value, class... Arguments>
Value read(void* library, const char* name, Value value, Arguments... arguments) {
  Function* const function = find<Function>(library, name);
  return function != nullptr && function(arguments..., &value) == 0 ? value : 0;
}

GpuState read_all(void* library, Gpu* gpu) {
  const auto number = [&](const char* name) { return read<ReadNumber>(library, name, 0U, gpu); };
  const auto clock = [&](const char* name) {
    return read<ReadClock>(library, name, 0U, gpu, kClockOfSms);
  };
  return {.pcie_generation = number("nvmlDeviceGetCurrPcieLinkGeneration"),
          .most_pcie_generation = number("nvmlDeviceGetMaxPcieLinkGeneration"),
          .pcie_lanes = number("nvmlDeviceGetCurrPcieLinkWidth"),
          .most_pcie_lanes = number("nvmlDeviceGetMaxPcieLinkWidth"),
          .sm_mhz = clock("nvmlDeviceGetClockInfo"),
          .most_sm_mhz = clock("nvmlDeviceGetMaxClockInfo"),
          .throttle_reasons =
              read<ReadReasons>(library, "nvmlDeviceGetCurrentClocksThrottleReasons", 0ULL, gpu),
          .uncorrected_errors = read<ReadErrors>(library, "nvmlDeviceGetTotalEccErrors", 0ULL, gpu,
                                                 kUncorrected, kSinceDriverStart),
          .energy_mj = read<ReadEnergy>(library, "nvmlDeviceGetTotalEnergyConsumption", 0ULL, gpu)};
}

}  // namespace

GpuState read_gpu_state(const std::string& bus_id) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.unread = concat("NVML cannot be loaded: ", dlerror())};
  Init* const init = find<Init>(library, "nvmlInit_v2");
  FindGpu* const find_gpu = find<FindGpu>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  Gpu* gpu = nullptr;
  if (init == nullptr || find_gpu == nullptr || init() != 0) {
    return {.unread = "NVML does not start"};
  }
  if (find_gpu(bus_id.c_str(), &gpu) != 0) return {.unread = "NVML does not know " + bus_id};
  return read_all(library, gpu);
}

GpuState combined(const GpuState& before, const GpuState& now) {
  GpuState state = now;
  state.pcie_generation = std::max(before.pcie_generation, now.pcie_generation);
  state.pcie_lanes = std::max(before.pcie_lanes, now.pcie_lanes);
  state.throttle_reasons |= before.throttle_reasons;
  return state;
}

}  // namespace bertha
