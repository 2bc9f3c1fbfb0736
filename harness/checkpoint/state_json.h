#pragma once

#include <string>

#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// state.json: counters, scalars of the optimizer and the evaluations so far. Floats are written
/// so that they read back bit for bit.
std::string to_json(const TrainingState& state);
/// Error(kData) naming `path` and the field.
TrainingState training_state_from_json(const std::string& text, const std::string& path);

}  // namespace bertha
