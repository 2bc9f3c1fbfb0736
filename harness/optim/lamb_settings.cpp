#include "harness/optim/lamb_settings.h"

namespace bertha {
namespace {

ClipPoint parse_clip(const OptimizerConfig& config) {
  if (config.max_gradient_norm == 0.0) return ClipPoint::kOff;
  return config.clip == "before" ? ClipPoint::kBeforeReduction : ClipPoint::kAfterReduction;
}

SpikeRule parse_spikes(const std::string& word) {
  if (word == "skip") return SpikeRule::kSkip;
  return word == "rewind" ? SpikeRule::kHold : SpikeRule::kCount;
}

}  // namespace

LambSettings make_lamb_settings(const OptimizerConfig& config, int64_t schedule_steps) {
  const bool is_dynamic = config.loss_scale == "dynamic";
  return LambSettings{
      .schedule = {.base = config.base_learning_rate,
                   .warmup_steps = config.warmup_steps,
                   .start_step = config.warmup_steps == 0 ? 0 : config.start_warmup_step,
                   .total_steps = schedule_steps,
                   .degree = config.decay_degree},
      .loss_scale = {.dynamic = is_dynamic,
                     .growth_interval_steps = config.loss_scale_growth_interval_steps},
      .initial_loss_scale = is_dynamic ? static_cast<float>(config.initial_loss_scale) : 1.0f,
      .clip = parse_clip(config),
      .max_gradient_norm = config.max_gradient_norm,
      .spikes = parse_spikes(config.gradient_spike),
  };
}

}  // namespace bertha
