#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// The differences of two configurations that change what a model learns, in the order of the keys:
/// {"optimizer.beta_1 0.9 -> 0.8"}. Keys for paths, speed, reports or the end of a run are left
/// out; train.max_steps is one of them where optimizer.schedule_steps sets the schedule.
std::vector<std::string> changed_settings(const Config& was, const Config& is);

}  // namespace bertha
