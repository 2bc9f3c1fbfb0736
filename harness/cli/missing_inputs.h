#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// A sentence for each input that a run would lack.
struct MissingInputs {
  std::vector<std::string> unset;  // keys without a path
  std::vector<std::string> wrong;  // paths that do not exist, or are something else
};

/// What a training run of this configuration would not find, one sentence each with what to do.
MissingInputs missing_inputs(const Config& config);

}  // namespace bertha
