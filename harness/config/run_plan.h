#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// Training sequences between evaluations by the benchmark's rule:
/// floor(0.05 * (230.23 * batch + 3,000,000) / 25,000) * 25,000.
///
/// Exact     in integers.
/// Source    MLPerf training policies, BERT.
int64_t eval_interval_samples(int64_t global_batch_seqs);

/// One planned evaluation: after `step` successful updates, which is the first step that has
/// trained on `samples` sequences.
struct PlannedEval {
  int64_t samples = 0;
  int64_t step = 0;
};

/// What follows from a configuration alone, without data or ranks.
struct RunPlan {
  int64_t schedule_steps = 0;  // step at which the learning rate reaches zero
  int64_t last_step = 0;       // from train.max_steps and train.max_samples
  int64_t last_samples = 0;    // trained at last_step
  int64_t eval_interval_samples = 0;
  int64_t eval_start_samples = 0;
  std::vector<PlannedEval> evals;  // rising steps, none beyond last_step

  /// Whether the run ends with an extra evaluation, because none is planned at its last step.
  bool has_eval_at_end() const { return evals.empty() || evals.back().step < last_step; }
  int64_t num_evals() const { return std::ssize(evals) + (has_eval_at_end() ? 1 : 0); }
};

/// Masked-token accuracy that a run has to reach: train.target_accuracy, and at least
/// train.target_times_constant times what the best constant answer scores on the evaluation set.
/// 0 = no target.
double target_of(const TrainConfig& train, double constant_answer_accuracy);

/// Evaluations are at start + k * interval sequences, below train.max_samples when that is set;
/// each falls on the first step that reaches it, and two on one step count once.
RunPlan make_run_plan(const Config& config);

/// Steps [first, last], counted from 1.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// Parses "11:15"; nothing if the text is not two ascending whole numbers from 1 on.
std::optional<StepRange> parse_step_range(std::string_view text);

}  // namespace bertha
