#pragma once

#include "harness/train/run.h"

namespace bertha {

// What a run does between steps: evaluations and checkpoints. All ranks call these together.

/// The plan counts successful updates: at its boundary the skipped ones are looked up, and the
/// evaluation waits until they have been made up for.
bool is_eval_due(TrainingRun& run);
/// With checkpoint.keep_best also saves, when no evaluation before was as good.
void evaluate_now(TrainingRun& run);
/// The next evaluation is at the first point of the plan behind the updates made so far, whatever
/// plan these were made by: a run may go on with other intervals, or beyond an earlier end.
void pass_planned_evals(TrainingRun& run);

/// What the last evaluation has to reach; 0 = no target.
double target_accuracy(const TrainingRun& run);
bool is_target_reached(const TrainingRun& run);

void save_now(TrainingRun& run);

}  // namespace bertha
