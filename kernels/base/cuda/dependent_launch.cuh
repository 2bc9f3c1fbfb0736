#pragma once

#include <algorithm>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/cuda/reduce.cuh"

namespace bertha {

// Programmatic dependent launch, which removes the gap between consecutive kernels: blocks of the
// second are placed while the first runs or, if the first does not trigger it (a library's), as
// soon as its last block has exited. The first calls begin_next_kernel; the second is launched by
// launch_dependent and calls wait_for_kernel_before before it accesses memory. In a step of
// BERT-large the GPU idles for 1.3 to 1.9 us before an ordinary launch, and not at all before a
// dependent one (CUPTI, H200).
//
// All threads of such a kernel wait, so that in a chain of them each one starts its work after all
// kernels before it have completed.
//
// Code for GPUs other than sm_90a neither triggers nor waits; its launches are ordinary.

/// In device code, whether this compiler pass generates code for sm_90a. On the host,
/// CudaDevice::has_sm90a_code() returns which code is loaded: portable kernels run as either.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kIsSm90aCode = true;
#else
inline constexpr bool kIsSm90aCode = false;
#endif

/// Has no effect if the next launch is an ordinary one.
__device__ __forceinline__ void begin_next_kernel() {
  if constexpr (kIsSm90aCode) cudaTriggerProgrammaticLaunchCompletion();
}

/// Returns when the previous kernel has completed and its writes are visible; immediately in an
/// ordinary launch. The previous kernel must have waited for its own predecessor.
__device__ __forceinline__ void wait_for_kernel_before() {
  if constexpr (kIsSm90aCode) cudaGridDependencySynchronize();
}

/// Blocks for `items` at `per_block` each: at least 1, at most `per_sm` for each SM.
inline unsigned blocks_on(const CudaContext& context, int64_t items, int64_t per_block,
                          int64_t per_sm) {
  return blocks_for(items, per_block, context.sm_count * per_sm);
}

/// Allows a kernel the given dynamic shared memory: CUDA requires this beyond 48 KiB. Called at
/// every launch, because remembering it would be state per device.
template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int64_t bytes) {
  BERTHA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
}

/// Number of blocks that run at once on an SM; at least one.
template <class Kernel>
int64_t resident_blocks(Kernel* kernel, int64_t threads, int64_t shared_bytes = 0) {
  if (shared_bytes > 0) allow_shared_bytes(kernel, shared_bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(threads), static_cast<size_t>(shared_bytes)));
  BERTHA_CHECK(resident > 0, "a block of ", threads, " threads and ", shared_bytes,
               " bytes of shared memory does not fit into an SM");
  return resident;
}

/// Blocks per SM of a persistent grid: `tuned` on sm_90a, where that was measured; on other GPUs at
/// most the number that runs at once.
template <class Kernel>
int64_t blocks_per_sm(const CudaContext& context, Kernel* kernel, int64_t threads,
                      int64_t shared_bytes, int64_t tuned) {
  if (context.kernels == KernelSet::kSm90a) return tuned;
  return std::min(resident_blocks(kernel, threads, shared_bytes), tuned);
}

/// Blocks of a grid or a cluster along the three axes.
struct GridSize : dim3 {
  GridSize(int64_t along_x, int64_t along_y = 1, int64_t along_z = 1)
      : dim3(static_cast<unsigned>(along_x), static_cast<unsigned>(along_y),
             static_cast<unsigned>(along_z)) {}
};

struct LaunchShape {
  GridSize blocks;
  int64_t threads;              // per block
  int64_t shared_bytes = 0;     // dynamic ones of a block
  GridSize cluster = 0;         // blocks per cluster; 0 = without clusters
  bool is_cooperative = false;  // all blocks run at once
  bool is_dependent = false;    // see launch_dependent
};

/// `shape` as CUDA's launch configuration, with its attributes.
inline cudaLaunchConfig_t launch_config(cudaStream_t stream, const LaunchShape& shape,
                                        cudaLaunchAttribute (&attributes)[3]) {
  cudaLaunchConfig_t config{.gridDim = shape.blocks,
                            .blockDim = GridSize(shape.threads),
                            .dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes),
                            .stream = stream,
                            .attrs = attributes,
                            .numAttrs = 0};
  const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute = {};
    attribute.id = id;
    return attribute.val;
  };
  if (shape.cluster.x > 0) {
    add(cudaLaunchAttributeClusterDimension).clusterDim = {shape.cluster.x, shape.cluster.y,
                                                           shape.cluster.z};
  }
  if (shape.is_cooperative) add(cudaLaunchAttributeCooperative).cooperative = 1;
  if (shape.is_dependent) {
    add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed =
        1;
  }
  return config;
}

/// Number of clusters of this shape that run at once on the GPU; at least one.
template <class Kernel>
int64_t resident_clusters(Kernel* kernel, const LaunchShape& shape) {
  allow_shared_bytes(kernel, shape.shared_bytes);
  cudaLaunchAttribute attributes[3];
  const cudaLaunchConfig_t config = launch_config(nullptr, shape, attributes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&resident, kernel, &config));
  BERTHA_CHECK(resident > 0, "a cluster of ", shape.cluster.x, " blocks with ", shape.shared_bytes,
               " bytes of shared memory each does not fit into the GPU");
  return resident;
}

template <class... Parameters, class... Arguments>
void launch_kernel(cudaStream_t stream, void (*kernel)(Parameters...), const LaunchShape& shape,
                   const Arguments&... arguments) {
  if (shape.shared_bytes > 0) allow_shared_bytes(kernel, shape.shared_bytes);
  cudaLaunchAttribute attributes[3];
  const cudaLaunchConfig_t config = launch_config(stream, shape, attributes);
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/// Launches a kernel for sm_90a only, dependent on the previous one.
template <class... Parameters, class... Arguments>
void launch_dependent(cudaStream_t stream, void (*kernel)(Parameters...), LaunchShape shape,
                      const Arguments&... arguments) {
  shape.is_dependent = true;
  launch_kernel(stream, kernel, shape, arguments...);
}

/// Launches a kernel that the portable set has, too: there the launch is an ordinary one.
template <class... Parameters, class... Arguments>
void launch_dependent(const CudaContext& context, void (*kernel)(Parameters...), LaunchShape shape,
                      const Arguments&... arguments) {
  shape.is_dependent = context.kernels == KernelSet::kSm90a;
  launch_kernel(context.stream, kernel, shape, arguments...);
}

}  // namespace bertha
