#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/report/run_records.h"

namespace bertha {

/// Warns of a run whose records show a known fault, each fault once: a start checkpoint that was
/// not loaded, evaluations that repeat, a loss worse than guessing, a collapsing loss scale.
/// `bertha-tools diagnose` knows more shapes, of runs that have ended.
class CurveChecks {
 public:
  CurveChecks() = default;
  /// start_weights: checkpoint.init; "" = drawn at random.
  CurveChecks(int64_t vocab_size, int64_t first_step, std::string start_weights);

  /// Sentences to warn with, few or none.
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
