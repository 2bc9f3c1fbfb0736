#pragma once

#include <string>

#include "harness/train/run.h"

namespace bertha {

/// Writes <run_dir>/post_mortem.rank_%04d.json after a numeric failure: counters (`lamb` as the
/// device has them now), the sample ids of this rank's last batch, and the sum of squares of every
/// tensor's weights and of this rank's gradients, with those that are not finite named. All ranks
/// call it. Returns the path.
std::string write_post_mortem(const TrainingRun& run, const LambState& lamb);

}  // namespace bertha
