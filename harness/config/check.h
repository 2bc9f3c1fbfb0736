#pragma once

#include <string>
#include <vector>

#include "harness/config/load.h"

namespace bertha {

/// A sentence for every broken constraint between keys, such as shapes that must divide each other,
/// after the place of its first key that was set: "my.yaml:4:3: model.heads = 3 does not ...".
/// `world_size`: number of ranks; 0 = unknown, which skips the checks that need it.
std::vector<std::string> contradictions(const LoadedConfig& loaded, int world_size);

/// Errors    Error(kUsage) with every contradiction, one per line.
void check_config(const LoadedConfig& loaded, int world_size);

/// Warnings about settings that are rarely intended, such as a warm-up beyond the last step.
std::vector<std::string> config_remarks(const Config& config);

}  // namespace bertha
