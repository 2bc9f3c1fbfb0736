#pragma once

#include <utility>

#include "kernels/cuda/common/compiled_for.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// Programmatic dependent launch, which removes the gap between consecutive kernels: blocks of the
// second are placed while the first runs, or where the first does not trigger it (a library's), as
// soon as its last block has exited. The first calls begin_next_kernel; the second is launched by
// launch_dependent and calls wait_for_kernel_before before it touches memory. In a step of
// BERT-large the GPU idles some 1.3 to 1.9 us before an ordinary launch, and not at all before one
// of these (CUPTI, H200).
//
// All threads of such a kernel wait, so that in a chain of them each one starts its work after all
// kernels before it have completed.
//
// Code for other GPUs than those of sm_90a neither triggers nor waits; its launches are ordinary.

/// No effect where the next launch is an ordinary one.
__device__ __forceinline__ void begin_next_kernel() {
  if constexpr (kIsSm90aCode) cudaTriggerProgrammaticLaunchCompletion();
}

/// Returns when the kernel before has completed and its writes are visible; at once in an ordinary
/// launch. The kernel before must have waited for its own predecessor.
__device__ __forceinline__ void wait_for_kernel_before() {
  if constexpr (kIsSm90aCode) cudaGridDependencySynchronize();
}

/// Blocks for `items` at `per_block` each: at least 1, at most `per_sm` for each SM.
inline unsigned blocks_on(const CudaContext& context, int64_t items, int64_t per_block,
                          int64_t per_sm) {
  return blocks_for(items, per_block, context.sm_count * per_sm);
}

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
  unsigned cluster = 0;  // blocks along x that form one; 0: the kernel knows no clusters
};

template <class... Parameters, class... Arguments>
void launch_kernel(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                   const Arguments&... arguments) {
  kernel<<<shape.blocks, shape.threads, static_cast<size_t>(shape.shared_bytes), stream>>>(
      arguments...);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Of a kernel of sm_90a.
template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                      Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {dependent_attribute(), {}};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 0 ? 2 : 1;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

/// Of a kernel that portable sets have, too: an ordinary launch there.
template <class... Parameters, class... Arguments>
void launch_dependent(const CudaContext& context, void (*kernel)(Parameters...),
                      const LaunchShape& shape, const Arguments&... arguments) {
  if (context.kernels == KernelSet::kSm90a) {
    return launch_dependent(context.stream, kernel, shape, arguments...);
  }
  launch_kernel(context.stream, kernel, shape, arguments...);
}

}  // namespace bertha
