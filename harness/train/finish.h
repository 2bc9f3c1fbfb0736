#pragma once

#include "harness/train/run.h"

namespace bertha {

/// Why the loop ended. Higher values win when ranks disagree.
enum class Stop : int { kNo = 0, kEndOfPlan = 1, kTarget = 2, kRequeue = 3, kNumeric = 4 };

/// The last evaluation and checkpoint, the end of the log, and the summary or the post-mortem. All
/// ranks call it with the same reason. Returns the exit code, the same on every rank.
int finish_run(TrainingRun& run, Stop stop);

}  // namespace bertha
