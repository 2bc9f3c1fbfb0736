#pragma once

#include "harness/train/training.h"

namespace bertha {

/// Chooses the run folder, builds model and optimizer, and fills them with fresh weights or those
/// of the checkpoint to go on from. The log is then at init_stop. All ranks call it.
///
/// Errors    the same on all ranks: Error(kUsage) or Error(kData) when the checkpoint does not fit
///           the config.
void start_run(Training& training, const RunInfo& info);

/// Writes run_start, then reads the evaluation set and opens the training data, which the benchmark
/// allows only now, and records the settings in the run folder. All ranks call it.
///
/// Errors    the same on all ranks, and the log has ended: Error(kData) or Error(kUsage) when the
///           data are damaged or do not fit the config.
void open_data(Training& training, const RunInfo& info);

}  // namespace bertha
