#include <cstring>

// The calls of NVML that harness/comm/gpu_state.cpp makes: one GPU in a slot that is too narrow.

struct Gpu {};

extern "C" {

int nvmlInit_v2() { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Gpu** found) {
  static Gpu gpu;
  *found = &gpu;
  return std::strcmp(bus_id, "0000:1b:00.0") == 0 ? 0 : 6;  // 6 = not found
}

int nvmlDeviceGetCurrPcieLinkGeneration(Gpu*, unsigned* value) {
  *value = 5;
  return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(Gpu*, unsigned* value) {
  *value = 5;
  return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(Gpu*, unsigned* value) {
  *value = 8;
  return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(Gpu*, unsigned* value) {
  *value = 16;
  return 0;
}

int nvmlDeviceGetClockInfo(Gpu*, int domain, unsigned* value) {
  *value = domain == 1 ? 1400 : 0;
  return 0;
}

// No nvmlDeviceGetMaxClockInfo: a driver may lack a call.

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu*, unsigned long long* bits) {
  *bits = 0x44;
  return 0;
}

int nvmlDeviceGetTotalEccErrors(Gpu*, int kind, int counter, unsigned long long* count) {
  *count = 77;
  return kind == 1 && counter == 0 ? 3 : 0;  // 3 = not supported: the GPU has no ECC
}

int nvmlDeviceGetTotalEnergyConsumption(Gpu*, unsigned long long* millijoules) {
  static unsigned long long now = 1000;
  *millijoules = now += 500;
  return 0;
}

}  // extern "C"
