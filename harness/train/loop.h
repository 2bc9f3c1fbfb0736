#pragma once

#include <string>

#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "harness/report/run_folder.h"

namespace bertha {

/// Trains as configured until the target, the last step or sample, the time limit or a signal.
/// All ranks call it. Returns the exit code, the same on every rank: kSuccess, kTargetMissed,
/// kRequeue after a saved stop, kNumeric after too many skipped updates or rewinds, if replicas
/// differ, or if a checkpoint would contain numbers that are not finite.
///
/// Errors    everything else throws bertha::Error; earlier results are not changed.
int run_training(const Config& config, World& world, const RunInfo& info = {});

/// Accuracy and losses of a checkpoint folder (ours or Hugging Face's) on data.eval.
/// Rank 0 prints them and writes them to `json_path`, see write_report().
/// Returns kTargetMissed if train.target_accuracy is set and not reached.
int run_evaluation(const Config& config, const std::string& checkpoint,
                   const std::string& json_path, World& world);

}  // namespace bertha
