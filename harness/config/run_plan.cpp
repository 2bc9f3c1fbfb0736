#include "harness/config/run_plan.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/base/parse_number.h"

namespace bertha {

int64_t eval_interval_samples(int64_t global_batch_seqs) {
  // 0.05 * 230.23 = 11.5115; the rule times 10,000 is exact in integers.
  constexpr int64_t kGranule = 25'000;
  const int64_t times_10000 = 115'115 * global_batch_seqs + 1'500'000'000;
  return times_10000 / (10'000 * kGranule) * kGranule;
}

double target_of(const TrainConfig& train, double constant_answer_accuracy) {
  if (train.target_accuracy <= 0) return 0;
  return std::max(train.target_accuracy, train.target_times_constant * constant_answer_accuracy);
}

RunPlan make_run_plan(const Config& config) {
  const TrainConfig& train = config.train;
  const int64_t batch = train.global_batch_seqs;
  RunPlan plan;
  plan.schedule_steps = config.optimizer.schedule_steps > 0 ? config.optimizer.schedule_steps
                                                            : std::max<int64_t>(train.max_steps, 1);
  plan.last_step = train.max_steps;
  if (train.max_samples > 0) {
    plan.last_step = std::min(plan.last_step, ceil_div(train.max_samples, batch));
  }
  plan.last_samples = plan.last_step * batch;
  plan.eval_interval_samples =
      config.eval.every_samples > 0 ? config.eval.every_samples : eval_interval_samples(batch);
  plan.eval_start_samples =
      config.eval.start_samples > 0 ? config.eval.start_samples : plan.eval_interval_samples;
  for (int64_t samples = plan.eval_start_samples;; samples += plan.eval_interval_samples) {
    const int64_t step = ceil_div(samples, batch);
    if (step > plan.last_step) break;
    if (train.max_samples > 0 && samples >= train.max_samples) break;
    if (!plan.evals.empty() && plan.evals.back().step == step) continue;
    plan.evals.push_back({.samples = samples, .step = step});
  }
  return plan;
}

std::optional<StepRange> parse_step_range(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<int64_t>(text.substr(0, colon));
  const auto last = parse_number<int64_t>(text.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  return StepRange{.first = *first, .last = *last};
}

}  // namespace bertha
