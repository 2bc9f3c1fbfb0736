#include "harness/comm/gpu_state.h"

#include <dlfcn.h>

#include <algorithm>

#include "kernels/base/error.h"

// NVML comes with the driver, but its header with a package that is rarely installed for builds.
// These are its declarations, which do not change between driver versions.
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

/// The value that a function of NVML returns; 0 if the driver lacks the function or refuses.
template <class Function, class Value, class... Arguments>
Value read(void* library, const char* name, Value value, Arguments... arguments) {
  Function* const function = find<Function>(library, name);
  return function != nullptr && function(arguments..., &value) == 0 ? value : 0;
}

int64_t sm_mhz_of(void* library, Gpu* gpu) {
  return read<ReadClock>(library, "nvmlDeviceGetClockInfo", 0U, gpu, kClockOfSms);
}

uint64_t energy_mj_of(void* library, Gpu* gpu) {
  return read<ReadEnergy>(library, "nvmlDeviceGetTotalEnergyConsumption", 0ULL, gpu);
}

/// A GPU that the driver reports, or why there is none.
struct Found {
  void* library = nullptr;
  Gpu* gpu = nullptr;
  std::string unread = "";
};

/// NVML, before selecting a GPU. It is initialized once and kept until the process ends.
Found start_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.unread = concat("NVML cannot be loaded: ", dlerror())};
  Init* const init = find<Init>(library, "nvmlInit_v2");
  if (init == nullptr || init() != 0) return {.unread = "NVML does not start"};
  return {.library = library};
}

Found find_by(const std::string& bus_id) {
  static const Found started = start_nvml();
  Found found = started;
  if (found.library == nullptr) return found;
  FindGpu* const find_gpu = find<FindGpu>(found.library, "nvmlDeviceGetHandleByPciBusId_v2");
  if (find_gpu == nullptr || find_gpu(bus_id.c_str(), &found.gpu) != 0) {
    found = {.unread = "NVML does not find " + bus_id};
  }
  return found;
}

}  // namespace

GpuState read_gpu_state(const std::string& bus_id) {
  const Found found = find_by(bus_id);
  if (found.gpu == nullptr) return {.unread = found.unread};
  void* const library = found.library;
  Gpu* const gpu = found.gpu;
  const auto number = [&](const char* name) { return read<ReadNumber>(library, name, 0U, gpu); };
  return {.pcie_generation = number("nvmlDeviceGetCurrPcieLinkGeneration"),
          .max_pcie_generation = number("nvmlDeviceGetMaxPcieLinkGeneration"),
          .pcie_lanes = number("nvmlDeviceGetCurrPcieLinkWidth"),
          .max_pcie_lanes = number("nvmlDeviceGetMaxPcieLinkWidth"),
          .sm_mhz = sm_mhz_of(library, gpu),
          .max_sm_mhz = read<ReadClock>(library, "nvmlDeviceGetMaxClockInfo", 0U, gpu, kClockOfSms),
          .throttle_reasons =
              read<ReadReasons>(library, "nvmlDeviceGetCurrentClocksThrottleReasons", 0ULL, gpu),
          .uncorrected_errors = read<ReadErrors>(library, "nvmlDeviceGetTotalEccErrors", 0ULL, gpu,
                                                 kUncorrected, kSinceDriverStart),
          .energy_mj = energy_mj_of(library, gpu)};
}

GpuCounters read_gpu_counters(const std::string& bus_id) {
  const Found found = find_by(bus_id);
  if (found.gpu == nullptr) return {};
  return {.sm_mhz = sm_mhz_of(found.library, found.gpu),
          .energy_mj = energy_mj_of(found.library, found.gpu)};
}

GpuState combined(const GpuState& before, const GpuState& now) {
  GpuState state = now;
  state.pcie_generation = std::max(before.pcie_generation, now.pcie_generation);
  state.pcie_lanes = std::max(before.pcie_lanes, now.pcie_lanes);
  state.throttle_reasons |= before.throttle_reasons;
  return state;
}

}  // namespace bertha
