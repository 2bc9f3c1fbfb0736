#pragma once

#include <string>

#include "kernels/base/cuda/cuda_devices.h"

namespace bertha {

/// The kernels that a GPU runs. sm_90a: for the H100 and H200, with wgmma, bulk copies and
/// clusters. Portable: the same operations without these, from compute capability 8.0 on.
enum class KernelSet { kSm90a, kPortable };

/// A GPU, and what the driver has loaded of this program for it.
struct GpuCode {
  int major;  // compute capability
  int minor;
  int compiled_for;  // 90: for compute capability 9.0; 80 also if it was translated from PTX
};

/// The lowest compute capability (major) that any kernels run on.
inline constexpr int kMinComputeMajor = 8;

/// The smallest shared memory that a block may have on these GPUs (8.6, 8.9, 12.0).
inline constexpr int64_t kMinSharedBytes = int64_t{99} << 10;

/// The rule: the kernels of sm_90a on a GPU of 9.0 that has loaded code for it, unless portable is
/// asked for; the portable ones on all others.
KernelSet choose_kernels(CudaKernels asked, const GpuCode& code);

/// "sm_90a kernels" or "portable kernels".
std::string text(KernelSet kernels);

}  // namespace bertha
