#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// The differences of two configurations that change what a model learns, in the order of the keys:
/// {"optimizer.beta_1 0.9 -> 0.8"}. Keys that are not learned are left out, and train.max_steps if
/// optimizer.schedule_steps sets the schedule.
std::vector<std::string> changed_settings(const Config& was, const Config& is);

}  // namespace bertha
