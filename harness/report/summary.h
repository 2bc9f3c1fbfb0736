#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bertha {

/// The result of a run, for the table at the end of its output.
struct RunSummary {
  double target_accuracy = 0;                    // 0 = no target
  std::optional<double> accuracy = {};           // of the last evaluation; none = never evaluated
  std::optional<double> baseline_accuracy = {};  // of always answering the most frequent token
  int64_t steps = 0;
  int64_t samples = 0;
  double seconds = 0;                            // run_start to run_stop
  double seqs_per_second = 0;                    // in training, without evaluations
  double tokens_per_second = 0;                  // 0 = unknown
  std::optional<double> joules_per_sample = {};  // see RunEnd; none = unknown
  std::string run_dir = {};
  std::string config = {};      // the resolved*.yaml of this start
  std::string checkpoint = {};  // "" = none was written
  // The run's settings, for the command after a missed target.
  int64_t max_steps = 0;
  int64_t max_samples = 0;           // 0 = no limit
  int64_t schedule_steps = 0;        // step at which the learning rate reaches zero
  bool has_schedule_steps = false;   // set by optimizer.schedule_steps, not by train.max_steps
  bool has_initial_weights = false;  // checkpoint.init
};

bool target_reached(const RunSummary& summary);

/// The table, one fact per line, ending in a newline; for standard output. With a checkpoint its
/// last line is a command to copy: an evaluation; after further training without a target, an
/// export; after a missed target, one that continues training while the schedule has a learning
/// rate left, otherwise a run with twice the steps in another folder.
std::string summary_text(const RunSummary& summary);

}  // namespace bertha
