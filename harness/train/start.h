#pragma once

#include "harness/train/training.h"

namespace bertha {

/// Chooses the run folder, builds model and optimizer, and initializes them or loads the checkpoint
/// to resume from. The log is then at init_stop. All ranks call it.
///
/// Errors    the same on all ranks: Error(kUsage) or Error(kData) if the checkpoint does not fit
///           the config.
void start_run(Training& training, const RunInfo& info);

/// Writes run_start, then reads the evaluation set and opens the training data, which the benchmark
/// allows only after run_start, and records the settings in the run folder. All ranks call it.
///
/// Errors    the same on all ranks, after the log has ended: Error(kData) or Error(kUsage) if the
///           data are damaged or do not fit the config.
void open_data(Training& training, const RunInfo& info);

}  // namespace bertha
