#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// What a model learns by, where two configurations differ, in the order of the keys:
/// {"optimizer.beta_1 0.9 -> 0.8"}. Keys that only tell where things lie, how fast they go, what
/// is reported or when a run ends make no other run of it and are left out; train.max_steps is
/// among those where optimizer.schedule_steps sets the schedule.
std::vector<std::string> changed_settings(const Config& was, const Config& is);

}  // namespace bertha
