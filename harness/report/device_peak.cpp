#include "harness/report/device_peak.h"

#include <array>
#include <string_view>

namespace bertha {
namespace {

struct Peak {
  std::string_view name;
  double tflops;
};

/// bf16 and f16 without sparsity. Names that are prefixes of others come last.
constexpr std::array<Peak, 7> kPeaks{{
    {"NVIDIA H200 NVL", 835.5},
    {"NVIDIA H200", 989.5},
    {"NVIDIA GH200", 989.5},
    {"NVIDIA H100 NVL", 835.5},
    {"NVIDIA H100 PCIe", 756},
    {"NVIDIA H100", 989.5},
    {"NVIDIA A100", 312},
}};

}  // namespace

double peak_flops(const std::string& device, DType io) {
  if (io == DType::kF32) return 0;
  for (const Peak& peak : kPeaks) {
    if (device.starts_with(peak.name)) return 1e12 * peak.tflops;
  }
  return 0;
}

}  // namespace bertha
