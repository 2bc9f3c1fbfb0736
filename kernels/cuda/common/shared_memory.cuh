#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_check.h"

namespace bertha {

/// Allows a kernel that much dynamic shared memory: beyond 48 KiB CUDA wants to be asked. Asked at
/// every launch, because remembering it would be state per device.
template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int64_t bytes) {
  BERTHA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
}

}  // namespace bertha
