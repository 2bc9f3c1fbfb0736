#pragma once

#include <string>

#include "harness/optim/optimizer.h"
#include "harness/train/reporter.h"
#include "harness/train/run.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// Fills weights, moments and counters: with fresh ones, or from the checkpoint that
/// checkpoint.resume asks for. A checkpoint that it names is where a continuation begins; once the
/// run folder has checkpoints of that continuation, the newest of these is taken. All ranks call
/// it.
///
/// Errors    the same on all ranks: Error(kUsage) or Error(kData) when the checkpoint does not fit
///           the config.
void begin_or_go_on(Run& run, Reporter& reporter);

/// Loads weights, moments, counters and evaluations of a checkpoint; "" = what a fresh run begins
/// with. Evaluations of other data than this run's are left out. Returns the position in the data
/// that the checkpoint states. All ranks call it. Errors as above, of the checkpoint alone.
DataPosition put_back(Run& run, const std::string& checkpoint);

/// From here on the checkpoints of the run folder belong to this run: others are set aside, and
/// <ckpt>/resumed_from keeps the checkpoint that the continuation began with. To be called when
/// nothing else can fail: a run that cannot start does not change the folder. All ranks call it.
void claim_checkpoints(const Run& run);

/// What the config's schedule changes for a model that was last updated as `lamb` says: one
/// sentence, "" where it gives the last update the learning rate that it had.
std::string learning_rate_change(const Config& config, const LambState& lamb);

}  // namespace bertha
