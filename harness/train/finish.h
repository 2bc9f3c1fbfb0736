#pragma once

#include <functional>
#include <string>

#include "harness/train/training.h"

namespace bertha {

/// The last evaluation and checkpoint, the end of the log, and the summary or the post-mortem. All
/// ranks call it with the same reason. A stop before the first step saves nothing, as nothing has
/// been learnt. Returns the exit code, the same on every rank.
int finish_run(Training& training, Stop stop);

/// Ends a run with kNumeric: a post-mortem, the log with the reason, a sentence, and
/// the status "aborted". All ranks call it. Returns kNumeric.
int finish_numeric(Training& training, const std::string& reason);

/// After a signal during initialisation: ends the log; nothing new has to be saved. All ranks call
/// it. Returns kRequeue.
int stop_before_training(Training& training);

/// Runs `work` on data. When it finds them wrong, the log of the run ends with the reason and the
/// status "aborted", and the error goes on: the folder stays, and does not look like a run under
/// way. All ranks call it.
///
/// Needs     an Error(kData) or Error(kUsage) of `work` is thrown on all ranks or on none: they
///           wait for rank 0's log, because the first rank to exit ends the others.
void end_log_if_data_fail(Training& training, const std::function<void()>& work);

}  // namespace bertha
