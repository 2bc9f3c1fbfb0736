#include "kernels/base/cuda/kernel_set.h"

namespace bertha {

KernelSet choose_kernels(CudaKernels asked, const GpuCode& code) {
  const bool is_sm90a = code.major == 9 && code.minor == 0 && code.compiled_for == 90;
  return is_sm90a && asked == CudaKernels::kAuto ? KernelSet::kSm90a : KernelSet::kPortable;
}

std::string text(KernelSet kernels) {
  return kernels == KernelSet::kSm90a ? "sm_90a kernels" : "portable kernels";
}

}  // namespace bertha
