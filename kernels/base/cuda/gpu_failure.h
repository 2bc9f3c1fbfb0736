#pragma once

#include <string>

namespace bertha {

/// Whether a failed call is a sign of broken hardware.
enum class GpuDamage {
  kNone,      // a failure of the driver, the memory or the settings
  kPossible,  // a bug of a kernel looks the same
  kCertain,
};

/// The message for a failed call: what failed, on which GPU, and where the driver reports more.
/// `reason`: CUDA's text; `gpu`: for example "GPU 3 (0000:1b:00.0)", "" = unknown.
std::string gpu_failure_text(const std::string& call, const std::string& reason, GpuDamage damage,
                             const std::string& gpu);

}  // namespace bertha
