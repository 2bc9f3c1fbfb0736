#pragma once

#include <string>
#include <vector>

#include "harness/config/load.h"
#include "harness/report/text_format.h"

namespace bertha {

/// A YAML file, or what the newest start in a run folder recorded. Errors as load_config().
LoadedConfig config_of(const std::string& path);

/// A row for each key whose value is not the same in all of `configs`: the key, then the value in
/// each, with its origin as a comment when `origins`.
TextTable differing_keys(const std::vector<LoadedConfig>& configs, bool origins);

}  // namespace bertha
