#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/report/run_records.h"

namespace bertha {

/// Detects known faults in the records of a run, each once: initial weights that were not loaded,
/// evaluations that repeat, a loss worse than guessing, a collapsing loss scale.
/// `bertha-tools diagnose` detects more, in runs that have ended.
class CurveChecks {
 public:
  CurveChecks() = default;
  /// start_weights: checkpoint.init; "" = random weights.
  CurveChecks(int64_t vocab_size, int64_t first_step, std::string start_weights);

  /// Warnings, if any.
  std::vector<std::string> after_step(const StepRecord& record);
  std::vector<std::string> after_eval(const EvalRecord& record);

 private:
  void add(const char* fault, const std::string& text, std::vector<std::string>& sentences);

  double guessing_loss_ = 0;  // ln(vocabulary), the loss of random weights
  int64_t first_step_ = 0;
  std::string start_weights_;
  std::set<std::string> named_;
  std::vector<StepRecord> steps_;  // the last few
  std::vector<EvalRecord> evals_;
};

}  // namespace bertha
