#pragma once

#include <functional>
#include <string>

#include "harness/train/training.h"

namespace bertha {

/// Runs the last evaluation, saves the last checkpoint, completes the log, and prints the summary
/// or writes the post-mortem. All ranks call it with the same reason. A stop before the first step
/// saves nothing, because nothing has been learned. Returns the exit code, the same on every rank.
int finish_run(Training& training, Stop stop);

/// Ends a run with kNumeric: writes a post-mortem, completes the log with the reason and the status
/// "aborted", and prints the reason. All ranks call it. Returns kNumeric.
int finish_numeric(Training& training, const std::string& reason);

/// Ends the log after a signal during initialization; nothing needs to be saved. All ranks call it.
/// Returns kRequeue.
int stop_before_training(Training& training);

/// Runs `work`, which reads data. If these are invalid, ends the log with the reason and the status
/// "aborted", so that the folder does not look like a live run, and rethrows. All ranks call it.
///
/// Needs     an Error(kData) or Error(kUsage) of `work` is thrown on all ranks or on none: they
///           wait for rank 0's log because the first rank to exit ends the others.
void end_log_if_data_fail(Training& training, const std::function<void()>& work);

}  // namespace bertha
