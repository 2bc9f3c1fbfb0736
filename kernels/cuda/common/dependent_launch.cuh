#pragma once

#include <utility>

#include "kernels/cuda/cuda_check.h"

namespace bertha {

// Kernels behind each other that hide the gap between them: the second one's blocks are placed
// while the first one runs, or where it calls nothing (a library's) as soon as its last block is
// gone, and wait. The first calls begin_next_kernel, the second wait_for_kernel_before before it
// touches memory; it is launched by launch_dependent. In a step of BERT-large the GPU idles some
// 1.3 to 1.9 us before a kernel that is launched otherwise, and not at all before one of these
// (CUPTI, H200).
//
// All threads of such a kernel wait, so what is done when one of them goes on was done by every
// kernel before, however many of those were launched in the same way.

/// Nothing where the next kernel was launched otherwise.
__device__ __forceinline__ void begin_next_kernel() { cudaTriggerProgrammaticLaunchCompletion(); }

/// Until the kernel before is complete and all that it has written is there; nothing for a kernel
/// launched otherwise. The kernel before has to have waited for its own.
__device__ __forceinline__ void wait_for_kernel_before() { cudaGridDependencySynchronize(); }

/// For a launch with other attributes too.
inline cudaLaunchAttribute dependent_attribute() {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

struct LaunchShape {
  dim3 blocks;
  int threads;  // of a block
  int64_t shared_bytes = 0;
};

template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                      Arguments&&... arguments) {
  cudaLaunchAttribute early = dependent_attribute();
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace bertha
