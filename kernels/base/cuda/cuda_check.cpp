#include "kernels/base/cuda/cuda_check.h"

#include <array>
#include <string>

#include "kernels/base/cuda/gpu_failure.h"

namespace bertha {
namespace {

ExitCode code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ExitCode::kMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      return ExitCode::kEnvironment;
    default:
      return ExitCode::kInternal;
  }
}

GpuDamage damage_of(cudaError_t status) {
  constexpr int kContained = 226;  // cudaErrorContained, which CUDA 12 does not name
  if (static_cast<int>(status) == kContained) return GpuDamage::kPossible;
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return GpuDamage::kCertain;
    case cudaErrorIllegalAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:  // also a GPU that has fallen off the bus
      return GpuDamage::kPossible;
    default:
      return GpuDamage::kNone;
  }
}

/// The current GPU, "" if CUDA no longer reports it.
std::string gpu_name() {
  int gpu = 0;
  std::array<char, 32> bus{};
  if (cudaGetDevice(&gpu) != cudaSuccess) return "";
  const bool has_bus =
      cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), gpu) == cudaSuccess;
  return concat("GPU ", gpu, has_bus ? concat(" (", bus.data(), ")") : "");
}

}  // namespace

void fail_cuda(cudaError_t status, const char* call) {
  cudaGetLastError();  // a caller that continues, e.g. without memory, must not see it again
  const GpuDamage damage = damage_of(status);
  const std::string reason =
      concat(cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
  fail(damage == GpuDamage::kCertain ? ExitCode::kEnvironment : code_of(status),
       gpu_failure_text(call, reason, damage, damage == GpuDamage::kNone ? "" : gpu_name()));
}

void fail_if_damaged(const char* call) {
  // A broken GPU fails each call of CUDA.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (damage_of(error) != GpuDamage::kNone) fail_cuda(error, call);
}

void* find_driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  BERTHA_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &function, kSinceCuda, cudaEnableDefault, &found));
  if (found == cudaDriverEntryPointSuccess) return function;
  fail(ExitCode::kEnvironment, "the CUDA driver lacks ", name,
       "; install one for CUDA 12.0 or newer.");
}

}  // namespace bertha
