#pragma once

#include <string>

#include "harness/train/run.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// Writes <run_dir>/post_mortem.rank_%04d.json after a numeric failure: counters (`lamb`: their
/// present values on the device) and the figures of every weight tensor; then this rank's last
/// batch, which runs through the model once more: its sample ids, scales and the figures of every
/// activation and of this rank's gradients. Tensors that are not finite are named. All ranks call
/// it. Returns the path.
///
/// Errors    Error(kData) if a file cannot be written.
std::string write_post_mortem(const Run& run, const LambState& lamb);

}  // namespace bertha
