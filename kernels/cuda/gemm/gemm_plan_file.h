#pragma once

#include <string>

#include "kernels/cuda/gemm/gemm_key.h"

namespace bertha {

/// Where algorithms may be used again: the same library on the same GPU model.
struct GemmOrigin {
  std::string device;   // "NVIDIA H200, 132 SMs"
  std::string library;  // "cublasLt 130100"
  bool operator==(const GemmOrigin&) const = default;
};

/// Reads the tuned algorithms in the text file `path`. Every algorithm must still be checked by the
/// library before it is used.
///
/// Errors    none: a file that is missing, cut, not understood or of another origin gives nothing,
///           and one warning that says which.
TunedGemms load_tuned_gemms(const std::string& path, const GemmOrigin& here);

/// Replaces `path` in one step, so that ranks may write the same file. Error(kEnvironment).
void save_tuned_gemms(const std::string& path, const GemmOrigin& here, const TunedGemms& tuned);

}  // namespace bertha
