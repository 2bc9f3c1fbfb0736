#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bertha {

/// How a run ended, for the table that is its last output.
struct RunSummary {
  double target_accuracy = 0;                    // 0 = there was no target
  std::optional<double> accuracy = {};           // of the last evaluation; none = never evaluated
  std::optional<double> baseline_accuracy = {};  // always saying the most frequent token
  int64_t steps = 0;
  int64_t samples = 0;
  double seconds = 0;                            // run_start to run_stop
  double seqs_per_second = 0;                    // of training, evaluations left out
  double tokens_per_second = 0;                  // 0 = unknown
  std::optional<double> joules_per_sample = {};  // see RunEnd; none = not known
  std::string run_dir = {};
  std::string config = {};      // the resolved*.yaml of this start
  std::string checkpoint = {};  // "" = none was written
  // What the run was to do, for the command after a missed target.
  int64_t max_steps = 0;
  int64_t max_samples = 0;           // 0 = no limit
  int64_t schedule_steps = 0;        // where the learning rate reaches zero
  bool has_schedule_steps = false;   // optimizer.schedule_steps says so, not train.max_steps
  bool has_initial_weights = false;  // checkpoint.init
};

bool target_reached(const RunSummary& summary);

/// The table, one fact per line, ending in a newline; for standard output. With a checkpoint its
/// last line is a command to copy: an evaluation; after further training without a target an
/// export; after a missed target one that trains on while the schedule has a learning rate left,
/// and then a run of twice the steps in a folder of its own.
std::string summary_text(const RunSummary& summary);

}  // namespace bertha
