#include "harness/optim/lamb_settings.h"

namespace bertha {
namespace {

ClipPoint clip_point(const OptimizerConfig& config) {
  if (config.max_gradient_norm == 0.0) return ClipPoint::kOff;
  return config.clip == ClipTime::kBefore ? ClipPoint::kBeforeReduction
                                          : ClipPoint::kAfterReduction;
}

SpikeRule spike_rule(GradientSpike rule) {
  if (rule == GradientSpike::kSkip) return SpikeRule::kSkip;
  return rule == GradientSpike::kRewind ? SpikeRule::kHold : SpikeRule::kCount;
}

}  // namespace

LambSettings make_lamb_settings(const OptimizerConfig& config, int64_t schedule_steps) {
  const bool is_dynamic = config.loss_scale == LossScaling::kDynamic;
  return LambSettings{
      .schedule = {.base = config.base_learning_rate,
                   .warmup_steps = config.warmup_steps,
                   .start_step = config.warmup_steps == 0 ? 0 : config.start_warmup_step,
                   .total_steps = schedule_steps,
                   .degree = config.decay_degree},
      .loss_scale = {.dynamic = is_dynamic,
                     .growth_interval_steps = config.loss_scale_growth_interval_steps},
      .initial_loss_scale = is_dynamic ? static_cast<float>(config.initial_loss_scale) : 1.0f,
      .clip = clip_point(config),
      .max_gradient_norm = config.max_gradient_norm,
      .spikes = spike_rule(config.gradient_spike),
  };
}

}  // namespace bertha
