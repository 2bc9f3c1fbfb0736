#pragma once

#include <string>
#include <vector>

#include "harness/config/load.h"

namespace bertha {

/// Rows of cells; the first row names the columns.
using TextTable = std::vector<std::vector<std::string>>;
/// A line per row; columns start below each other.
std::string aligned_text(const TextTable& table);

/// A YAML file, or what the newest start in a run folder recorded. Errors as load_config().
LoadedConfig config_of(const std::string& path);

/// A row for each key whose value is not the same in all of `configs`: the key, then the value in
/// each, with its origin as a comment when `origins`.
TextTable differing_keys(const std::vector<LoadedConfig>& configs, bool origins);

}  // namespace bertha
