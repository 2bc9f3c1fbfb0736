#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

/// Allows a kernel that much dynamic shared memory: beyond 48 KiB CUDA wants to be asked. Asked at
/// every launch, because remembering it would be state per device.
template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int64_t bytes) {
  BERTHA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(bytes)));
}

/// Blocks of a persistent grid on each SM: `tuned` of them on sm_90a, where that was measured; on
/// other GPUs no more than run at once.
template <class Kernel>
int64_t blocks_per_sm(const CudaContext& context, Kernel* kernel, int64_t threads,
                      int64_t shared_bytes, int64_t tuned) {
  if (context.kernels == KernelSet::kSm90a) return tuned;
  allow_shared_bytes(kernel, shared_bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel, static_cast<int>(threads), static_cast<size_t>(shared_bytes)));
  BERTHA_CHECK(resident > 0, "a block of ", threads, " threads and ", shared_bytes,
               " bytes of shared memory does not fit into an SM");
  return resident < tuned ? resident : tuned;
}

}  // namespace bertha
