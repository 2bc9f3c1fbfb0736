#pragma once

#include <string>

#include "harness/optim/optimizer.h"
#include "harness/train/reporter.h"
#include "harness/train/run.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// Initializes weights, moments and counters, or loads them from the checkpoint that
/// checkpoint.resume selects. A continuation begins at the checkpoint that it names; once the run
/// folder has checkpoints of that continuation, the newest of these is loaded. All ranks call it.
///
/// Errors    the same on all ranks: Error(kUsage) or Error(kData) if the checkpoint does not fit
///           the config.
void begin_or_go_on(Run& run, Reporter& reporter);

/// Loads weights, moments, counters and evaluations of a checkpoint; "" = the initial state of a
/// run. Evaluations of other data than this run's are left out. Returns the position in the data
/// that the checkpoint states. All ranks call it. Errors as above, of the checkpoint alone.
DataPosition restore_state(Run& run, const std::string& checkpoint);

/// Takes over the run folder: sets checkpoints that do not belong to this run aside, and writes the
/// checkpoint that the continuation began with to <ckpt>/resumed_from. Call it when nothing else
/// can fail, so that a run that cannot start does not change the folder. All ranks call it.
void claim_checkpoints(const Run& run);

/// A message if the config's schedule gives the model's last update, described by `lamb`, another
/// learning rate than it had; else "".
std::string learning_rate_change(const Config& config, const LambState& lamb);

}  // namespace bertha
