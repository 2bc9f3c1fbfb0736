#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// What no single key can tell: shapes and sizes that must fit each other.
/// `world_size` = ranks of the run; 0 when not known, then nothing is asked of it.
///
/// Errors    Error(kUsage) with a sentence for every contradiction, one a line.
void check_config(const Config& config, int world_size);

/// What may be meant but seldom is, such as a warm-up beyond the last step: sentences for people.
std::vector<std::string> config_remarks(const Config& config);

}  // namespace bertha
