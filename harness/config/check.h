#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// A sentence for every broken constraint between keys, such as shapes that must divide each other.
/// `world_size` = ranks of the run; 0 when not known, which skips its checks.
std::vector<std::string> contradictions(const Config& config, int world_size);

/// Errors    Error(kUsage) with every contradiction, one per line.
void check_config(const Config& config, int world_size);

/// Warnings about settings that are rarely intended, such as a warm-up beyond the last step.
std::vector<std::string> config_remarks(const Config& config);

}  // namespace bertha
