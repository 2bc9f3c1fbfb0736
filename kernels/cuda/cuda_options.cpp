#include "kernels/cuda/cuda_options.h"

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr const char* kWhy =
    "this GPU runs the portable kernels (only compute capability 9.0 has others, unless the "
    "portable ones are selected)";

}  // namespace

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

}  // namespace bertha
