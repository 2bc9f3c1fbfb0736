#include "kernels/cuda/kernel_set.h"

namespace bertha {
namespace {

constexpr const char* kWhy =
    "this GPU runs the portable kernels (compute capability 9.0 has others, unless portable ones "
    "are asked for)";

}  // namespace

KernelSet choose_kernels(CudaKernels asked, const GpuCode& code) {
  const bool is_sm90a = code.major == 9 && code.minor == 0 && code.compiled_for == 90;
  return is_sm90a && asked == CudaKernels::kAuto ? KernelSet::kSm90a : KernelSet::kPortable;
}

CudaOptions options_for(KernelSet kernels, CudaOptions options) {
  using Attention = CudaOptions::AttentionVariant;
  using Gelu = CudaOptions::GeluGemms;
  if (kernels == KernelSet::kSm90a) return options;
  if (options.attention == Attention::kPersistent || options.attention == Attention::kSplit) {
    fail(ExitCode::kUsage, "attention is ",
         options.attention == Attention::kSplit ? "split" : "persistent", ", but ", kWhy,
         "; set it to auto or grouped.");
  }
  if (options.gelu_gemms == Gelu::kOwn) {
    fail(ExitCode::kUsage, "gelu_gemms is own, but ", kWhy, "; set it to auto or library.");
  }
  options.attention = Attention::kGrouped;
  options.gelu_gemms = Gelu::kLibrary;
  return options;
}

std::string text(KernelSet kernels) {
  return kernels == KernelSet::kSm90a ? "sm_90a kernels" : "portable kernels";
}

}  // namespace bertha
