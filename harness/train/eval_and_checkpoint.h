#pragma once

#include "harness/train/run.h"

namespace bertha {

// What a run does between steps: evaluations and checkpoints. All ranks call these together.

/// The plan counts successful updates: at its boundary the skipped ones are looked up, and the
/// evaluation waits until they have been made up for.
bool is_eval_due(TrainingRun& run);
/// With checkpoint.keep_best also saves, when no evaluation before was as good.
void evaluate_now(TrainingRun& run);
/// An evaluation now covers the points of the plan up to here, but none after it: a run that
/// continues beyond an earlier end evaluates where it would have without that end.
void pass_planned_evals(TrainingRun& run);

/// What the last evaluation has to reach; 0 = no target.
double target_accuracy(const TrainingRun& run);
bool is_target_reached(const TrainingRun& run);

void save_now(TrainingRun& run);

}  // namespace bertha
