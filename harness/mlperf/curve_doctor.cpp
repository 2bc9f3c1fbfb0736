#include "harness/mlperf/curve_doctor.h"

#include <algorithm>
#include <cmath>

#include "harness/mlperf/published_curves.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

using Evals = std::vector<EvalRecord>;

/// The last `count` evaluations; nothing when there are fewer.
std::optional<Evals> last_evals(const Metrics& metrics, size_t count) {
  if (metrics.evals.size() < count) return std::nullopt;
  return Evals(metrics.evals.end() - static_cast<std::ptrdiff_t>(count), metrics.evals.end());
}

/// The latest evaluations that `fits`, up to the last one.
template <class Fits>
Evals latest_run_of(const Metrics& metrics, Fits fits) {
  const auto end = std::find_if_not(metrics.evals.rbegin(), metrics.evals.rend(), fits);
  return {end.base(), metrics.evals.end()};
}

struct Extent {
  double low;
  double high;
};

Extent extent_of(const Evals& evals, double EvalRecord::*value) {
  const auto [low, high] =
      std::minmax_element(evals.begin(), evals.end(),
                          [&](const auto& a, const auto& b) { return a.*value < b.*value; });
  return {(*low).*value, (*high).*value};
}

/// Whether a value stays within this share of itself.
bool steady(const Evals& evals, double EvalRecord::*value, double share) {
  const Extent extent = extent_of(evals, value);
  return extent.high - extent.low <= share * std::abs(extent.high);
}

/// No evaluation knows more words than the most frequent one, within chance.
bool scores_as_a_constant(const Evals& evals, const RunIdentity& run) {
  if (run.constant_answer_accuracy <= 0) return false;
  const double most = 1.1 * run.constant_answer_accuracy + 0.002;
  return extent_of(evals, &EvalRecord::mlm_accuracy).high <= most;
}

/// What copying visible words scores, with the most frequent one for [MASK]: of the masked tokens a
/// tenth keep their word and a tenth show a random one (Devlin et al. 2018, section 3.1).
double copying_accuracy(const RunIdentity& run) { return 0.1 + 0.8 * run.constant_answer_accuracy; }

}  // namespace

std::optional<CurveRemark> untouched_weights(const Metrics& metrics) {
  constexpr double kSameDigits = 1e-9, kNearUntrained = 0.002;
  constexpr int64_t kEnoughSamples = 100'000;
  const auto evals = last_evals(metrics, 3);
  const bool repeats = evals && steady(*evals, &EvalRecord::mlm_accuracy, kSameDigits) &&
                       steady(*evals, &EvalRecord::mlm_loss, kSameDigits);
  const Evals untrained = latest_run_of(metrics, [](const EvalRecord& eval) {
    return std::abs(eval.mlm_accuracy - kUntrainedAccuracy) < kNearUntrained;
  });
  const bool stays = is_benchmark_run(metrics.run) && untrained.size() >= 2 &&
                     untrained.back().samples >= kEnoughSamples;
  if (!repeats && !stays) return std::nullopt;
  return CurveRemark{
      "untouched weights",
      concat(
          "the evaluations stay at ", fixed_text(metrics.evals.back().mlm_accuracy, 4),
          stays ? ", what the start checkpoint scores without any training" : "",
          ": updates do not reach the weights. Look in metrics.jsonl for a learning_rate of 0, a "
          "gradient_norm of 0 and skipped_steps that grow with the steps")};
}

std::optional<CurveRemark> plateau_at_062(const Metrics& metrics) {
  constexpr double kLow = 0.60, kHigh = 0.645;
  constexpr int64_t kEnoughSamples = 300'000;
  if (!is_benchmark_run(metrics.run)) return std::nullopt;
  const Evals flat = latest_run_of(metrics, [&](const EvalRecord& eval) {
    return eval.mlm_accuracy >= kLow && eval.mlm_accuracy <= kHigh;
  });
  if (flat.empty() || flat.back().samples - flat.front().samples < kEnoughSamples) {
    return std::nullopt;
  }
  return CurveRemark{
      "plateau at 0.62",
      concat(
          "the accuracy stays at ", fixed_text(flat.back().mlm_accuracy, 4), " for ",
          scaled_text(static_cast<double>(flat.back().samples - flat.front().samples)),
          " samples, while published runs pass from 0.60 to 0.65 within 150k. Others had shards "
          "that were copies of each other or not shuffled: run bertha data verify on the "
          "training data, which finds copies, and shuffle over more shards (data.window_shards)")};
}

std::optional<CurveRemark> checkpoint_not_loaded(const Metrics& metrics) {
  constexpr int64_t kFirstSteps = 10;
  constexpr double kNear = 0.05;
  const RunIdentity& run = metrics.run;
  const bool from_a_checkpoint = !run.start_weights.empty() && run.first_step == 0;
  if (!from_a_checkpoint || run.vocab_size <= 1 || metrics.steps.empty()) return std::nullopt;
  const StepRecord& first = metrics.steps.front();
  const double random_loss = std::log(static_cast<double>(run.vocab_size));
  if (first.step > kFirstSteps) return std::nullopt;
  if (!(std::abs(first.mlm_loss - random_loss) < kNear * random_loss)) return std::nullopt;
  return CurveRemark{
      "checkpoint not loaded",
      concat("the first masked-token loss is ", fixed_text(first.mlm_loss, 2),
             ", that of random "
             "weights (ln ",
             run.vocab_size, " = ", fixed_text(random_loss, 2), "), although the run starts from ",
             run.start_weights,
             ". Evaluate that checkpoint by itself with bertha eval, and compare vocabularies: its "
             "vocab.txt has to be the one that the data was made with")};
}

std::optional<CurveRemark> next_sentence_only(const Metrics& metrics) {
  constexpr double kLearned = 0.8, kFlat = 0.02;
  const auto evals = last_evals(metrics, 3);
  if (!evals || !scores_as_a_constant(*evals, metrics.run)) return std::nullopt;
  const auto learned = [](const EvalRecord& eval) {
    return eval.nsp_accuracy.value_or(0) >= kLearned;
  };
  if (!std::ranges::all_of(*evals, learned)) return std::nullopt;
  if (!steady(*evals, &EvalRecord::mlm_loss, kFlat)) return std::nullopt;
  return CurveRemark{
      "next sentences only",
      concat("next sentences are learned (", fixed_text(*evals->back().nsp_accuracy, 3),
             "), masked tokens are not (", fixed_text(evals->back().mlm_accuracy, 4),
             ", the most frequent token alone scores ",
             fixed_text(metrics.run.constant_answer_accuracy, 4),
             "). That is what wrong masks or labels look like: run bertha data verify on the "
             "training data, and check that data.vocab is the vocabulary that it was made with")};
}

std::optional<CurveRemark> word_frequencies_only(const Metrics& metrics) {
  constexpr double kFlat = 0.01;
  const auto evals = last_evals(metrics, 4);
  if (!evals || !scores_as_a_constant(*evals, metrics.run)) return std::nullopt;
  const double least = 0.8 * metrics.run.constant_answer_accuracy;
  if (extent_of(*evals, &EvalRecord::mlm_accuracy).low < least) return std::nullopt;
  if (!steady(*evals, &EvalRecord::mlm_loss, kFlat)) return std::nullopt;
  return CurveRemark{
      "word frequencies only",
      concat(
          "the masked-token loss stays at ", fixed_text(evals->back().mlm_loss, 2),
          " and the accuracy at ", fixed_text(evals->back().mlm_accuracy, 4),
          ", that of the most frequent token: only word frequencies have been learned. Try a "
          "smaller learning rate or a longer warm-up; from random weights a larger batch or more "
          "steps also lead out of it")};
}

std::optional<CurveRemark> context_not_used(const Metrics& metrics) {
  constexpr double kFlat = 0.01, kSentencesLearned = 0.8;
  const auto evals = last_evals(metrics, 4);
  if (!evals || metrics.run.constant_answer_accuracy <= 0) return std::nullopt;
  const double copying = copying_accuracy(metrics.run);
  const Extent accuracy = extent_of(*evals, &EvalRecord::mlm_accuracy);
  if (accuracy.low < 0.9 * copying || accuracy.high > 1.1 * copying + 0.002) return std::nullopt;
  if (!steady(*evals, &EvalRecord::mlm_loss, kFlat)) return std::nullopt;
  const bool sentences = evals->back().nsp_accuracy.value_or(0) >= kSentencesLearned;
  return CurveRemark{
      "context not used",
      concat("the masked-token accuracy stays at ", fixed_text(evals->back().mlm_accuracy, 4),
             " and the loss at ", fixed_text(evals->back().mlm_loss, 2),
             ": copying the tenth of the masked tokens that keep their word, and word frequencies "
             "for the rest, score ",
             fixed_text(copying, 4),
             ". From random weights this lasts some 200,000 samples at best; small batches and "
             "AdamW at "
             "a low rate have led out of it, see configs/medium_from_scratch.yaml",
             sentences
                 ? ". Next sentences are learned, and their gradient can drown the other: try "
                   "train.nsp_weight: 0"
                 : "")};
}

std::optional<CurveRemark> collapsing_loss_scale(const Metrics& metrics) {
  constexpr size_t kRecords = 16;
  const auto& steps = metrics.steps;
  if (steps.empty()) return std::nullopt;
  const bool below_one = steps.back().loss_scale < 1;
  const bool falls =
      steps.size() > kRecords &&
      std::adjacent_find(steps.end() - kRecords - 1, steps.end(), [](const auto& a, const auto& b) {
        return !(b.loss_scale < a.loss_scale);
      }) == steps.end();
  if (!below_one && !falls) return std::nullopt;
  return CurveRemark{
      "collapsing loss scale",
      concat(
          "the loss scale has fallen to ", exponent_text(steps.back().loss_scale), " with ",
          steps.back().skipped_steps,
          " updates skipped: gradients are not finite at any scale, and training on is lost time. "
          "Train with train.precision bf16, or look for the step whose loss jumps and lower the "
          "learning rate")};
}

std::optional<CurveRemark> saturation(const Metrics& metrics) {
  // Scales leave room for one to two times the last step's maximum: the few elements of a step that
  // go beyond are far fewer than this.
  constexpr double kRare = 1e-5;
  constexpr size_t kRecords = 16;
  const auto& steps = metrics.steps;
  if (steps.size() < kRecords) return std::nullopt;
  const auto frequent =
      std::count_if(steps.end() - kRecords, steps.end(),
                    [](const StepRecord& step) { return step.fp8_saturated > kRare; });
  if (2 * frequent <= static_cast<std::ptrdiff_t>(kRecords)) return std::nullopt;
  return CurveRemark{
      "fp8 saturation",
      concat(exponent_text(steps.back().fp8_saturated), " of the elements rounded to fp8 at step ",
             steps.back().step,
             " were too large for it and became its largest number: activations or gradients grow "
             "from step to step. Lower the learning rate, or train with train.precision bf16")};
}

std::optional<CurveRemark> divergence(const Metrics& metrics) {
  constexpr double kTimesGuessing = 2;
  if (metrics.run.vocab_size <= 1 || metrics.steps.empty()) return std::nullopt;
  const StepRecord& last = metrics.steps.back();
  const double guessing = std::log(static_cast<double>(metrics.run.vocab_size));
  if (!(last.mlm_loss > kTimesGuessing * guessing)) return std::nullopt;
  return CurveRemark{
      "divergence",
      concat("the masked-token loss of step ", last.step, " is ", scaled_text(last.mlm_loss),
             ", and guessing costs ", fixed_text(guessing, 2),
             ": the updates are too large. Lower optimizer.base_learning_rate, lengthen "
             "optimizer.warmup_steps, or clip gradients with optimizer.max_gradient_norm")};
}

std::vector<CurveRemark> examine_curve(const Metrics& metrics) {
  std::vector<CurveRemark> remarks;
  const auto add = [&](const std::optional<CurveRemark>& remark) {
    if (remark) remarks.push_back(*remark);
  };
  add(untouched_weights(metrics));
  add(plateau_at_062(metrics));
  add(checkpoint_not_loaded(metrics));
  const auto sentences = next_sentence_only(metrics);
  add(sentences ? sentences : word_frequencies_only(metrics));  // the first explains the second
  add(context_not_used(metrics));
  add(collapsing_loss_scale(metrics));
  add(saturation(metrics));
  add(divergence(metrics));
  return remarks;
}

std::string curve_report(const std::string& path, const std::vector<CurveRemark>& remarks) {
  std::string text;
  for (const CurveRemark& remark : remarks) {
    text += concat(path, ": curve: ", remark.shape, ": ", remark.text, "\n");
  }
  return text;
}

}  // namespace bertha
