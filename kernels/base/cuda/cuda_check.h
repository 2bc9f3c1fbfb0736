#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/error.h"

namespace bertha {

/// Error(kMemory) for a failed allocation, Error(kEnvironment) for a missing or broken device,
/// Error(kInternal) for the rest (an address or a launch that is wrong). What may be damage names
/// the GPU and where the driver reports it.
[[noreturn]] void fail_cuda(cudaError_t status, const char* call);
/// fail_cuda() if the GPU is damaged, whichever library reported that `call` failed.
void fail_if_damaged(const char* call);

/// The driver's function of this name, asked of the runtime: linking with the driver would tie the
/// program to machines that have one. Error(kEnvironment) where the driver is older than CUDA 12.0.
void* find_driver_function(const char* name);

}  // namespace bertha

#define BERTHA_CUDA_CHECK(call)                                                  \
  do {                                                                           \
    const cudaError_t bertha_status = (call);                                    \
    if (bertha_status != cudaSuccess) ::bertha::fail_cuda(bertha_status, #call); \
  } while (false)
