#pragma once

#include <string>

#include "kernels/cuda/gemm/gemm_key.h"

namespace bertha {

/// Where algorithms may be used again: the same library on the same GPU model.
struct GemmOrigin {
  std::string device;   // "NVIDIA H200, 132 SMs"
  std::string library;  // "cublasLt 130100"
};

/// Reads the file `path`. The library must still check every algorithm before it is used. A file
/// that is missing, damaged or of another origin gives nothing, and one warning.
TunedGemms load_tuned_gemms(const std::string& path, const GemmOrigin& here);

/// Replaces `path` in one step, so that ranks may write the same file. Error(kEnvironment).
void save_tuned_gemms(const std::string& path, const GemmOrigin& here, const TunedGemms& tuned);

}  // namespace bertha
