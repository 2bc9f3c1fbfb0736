#include "harness/train/curve_checks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kFallingRecords = 17;  // in which the loss scale falls sixteen times in a row
constexpr size_t kEqualEvals = 3;

/// Replaces records that a run repeats after returning to a checkpoint.
template <class Record>
void append(const Record& record, size_t most, std::vector<Record>& records) {
  std::erase_if(records, [&](const Record& earlier) { return earlier.step >= record.step; });
  records.push_back(record);
  if (records.size() > most) records.erase(records.begin());
}

bool equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

}  // namespace

CurveChecks::CurveChecks(int64_t vocab_size, int64_t first_step, std::string start_weights)
    : guessing_loss_(std::log(static_cast<double>(vocab_size))),
      first_step_(first_step),
      start_weights_(std::move(start_weights)) {}

void CurveChecks::add(const char* fault, const std::string& text,
                      std::vector<std::string>& sentences) {
  if (named_.insert(fault).second) sentences.push_back(concat("curve: ", fault, ": ", text));
}

std::vector<std::string> CurveChecks::after_step(const StepRecord& record) {
  constexpr int64_t kFirstSteps = 10;
  constexpr double kNear = 0.05, kTimesGuessing = 2;
  std::vector<std::string> sentences;
  const bool is_first = steps_.empty() && first_step_ == 0 && record.step <= kFirstSteps;
  append(record, kFallingRecords, steps_);
  if (is_first && !start_weights_.empty() &&
      std::abs(record.mlm_loss - guessing_loss_) < kNear * guessing_loss_) {
    add("checkpoint not loaded",
        concat("the first masked-token loss is ", fixed_text(record.mlm_loss, 2),
               ", that of random weights, although the run starts from ", start_weights_,
               ". Evaluate that checkpoint alone with bertha eval, and compare its vocab.txt with "
               "the vocabulary of the data: they must be the same"),
        sentences);
  }
  if (record.mlm_loss > kTimesGuessing * guessing_loss_) {
    add("divergence",
        concat("the masked-token loss of step ", record.step, " is ", scaled_text(record.mlm_loss),
               ", more than guessing, ", fixed_text(guessing_loss_, 2),
               ": the updates are too large. Lower optimizer.base_learning_rate, lengthen "
               "optimizer.warmup_steps, or clip gradients with optimizer.max_gradient_norm"),
        sentences);
  }
  const auto rises = [](const StepRecord& a, const StepRecord& b) {
    return !(b.loss_scale < a.loss_scale);
  };
  const bool falls =
      steps_.size() == kFallingRecords && std::ranges::adjacent_find(steps_, rises) == steps_.end();
  if (falls || record.loss_scale < 1) {
    add("collapsing loss scale",
        concat("the loss scale has fallen to ", exponent_text(record.loss_scale), " with ",
               record.skipped_steps,
               " updates skipped: gradients are not finite at any scale. Train with "
               "train.precision bf16, or look for the step whose loss jumps and lower the learning "
               "rate"),
        sentences);
  }
  return sentences;
}

std::vector<std::string> CurveChecks::after_eval(const EvalRecord& record) {
  std::vector<std::string> sentences;
  append(record, kEqualEvals, evals_);
  const bool repeats =
      evals_.size() == kEqualEvals && std::ranges::all_of(evals_, [&](const EvalRecord& eval) {
        return equal(eval.mlm_accuracy, record.mlm_accuracy) &&
               equal(eval.mlm_loss, record.mlm_loss);
      });
  if (repeats) {
    add("untouched weights",
        concat("the evaluations stay at ", fixed_text(record.mlm_accuracy, 4),
               ": updates do not reach the weights. Look in metrics.jsonl for a learning_rate of "
               "0, a gradient_norm of 0 and skipped_steps that grow with the steps"),
        sentences);
  }
  return sentences;
}

}  // namespace bertha
