#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/error.h"

namespace bertha {

/// Error(kMemory) for a failed allocation, Error(kEnvironment) for a missing or broken device,
/// Error(kInternal) for other failures (a wrong address or launch). If the GPU may be damaged, the
/// message names it and where the driver reports it.
[[noreturn]] void fail_cuda(cudaError_t status, const char* call);
/// fail_cuda() if the GPU is damaged, whichever library reported that `call` failed.
void fail_if_damaged(const char* call);

/// The driver's function of this name, obtained from the runtime: linking with the driver would
/// restrict the program to machines that have one. Error(kEnvironment) if the driver is older than
/// CUDA 12.0.
void* find_driver_function(const char* name);

}  // namespace bertha

#define BERTHA_CUDA_CHECK(call)                                                  \
  do {                                                                           \
    const cudaError_t bertha_status = (call);                                    \
    if (bertha_status != cudaSuccess) ::bertha::fail_cuda(bertha_status, #call); \
  } while (false)
