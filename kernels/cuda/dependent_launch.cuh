#pragma once

#include <utility>

#include "kernels/cuda/cuda_check.h"

namespace bertha {

// Kernels behind each other that hide the gap between them: the second one's blocks are placed
// while the first one runs, and wait. The first calls begin_next_kernel, the second
// wait_for_kernel_before before it touches memory; it is launched by launch_dependent.

/// Nothing where the next kernel was launched otherwise.
__device__ __forceinline__ void begin_next_kernel() { cudaTriggerProgrammaticLaunchCompletion(); }

/// Until all that the kernel before has written is there; nothing for a kernel launched otherwise.
/// The kernel before has to have waited for its own.
__device__ __forceinline__ void wait_for_kernel_before() { cudaGridDependencySynchronize(); }

template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, void (*kernel)(Parameters...), dim3 blocks, int threads,
                      Arguments&&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace bertha
