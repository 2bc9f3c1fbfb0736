#include "harness/optim/lamb_settings.h"

namespace bertha {

bool clips_before_reduction(const OptimizerConfig& config) {
  return config.clip == ClipTime::kBefore && config.max_gradient_norm > 0;
}

float initial_loss_scale(const OptimizerConfig& config) {
  return config.loss_scale == LossScaling::kDynamic ? static_cast<float>(config.initial_loss_scale)
                                                    : 1.0f;
}

LambPrepareRules lamb_prepare_rules(const OptimizerConfig& config, int64_t schedule_steps) {
  return {.schedule = {.base = config.base_learning_rate,
                       .warmup_steps = config.warmup_steps,
                       .start_step = config.warmup_steps == 0 ? 0 : config.start_warmup_step,
                       .total_steps = schedule_steps,
                       .degree = config.decay_degree},
          .loss_scale = {.dynamic = config.loss_scale == LossScaling::kDynamic,
                         .growth_interval_steps = config.loss_scale_growth_interval_steps},
          .beta_1 = config.beta_1,
          .beta_2 = config.beta_2,
          .max_gradient_norm = clips_before_reduction(config) ? 0.0 : config.max_gradient_norm,
          .spikes = config.gradient_spike};
}

}  // namespace bertha
