#include "harness/optim/lamb_settings.h"

#include <algorithm>
#include <limits>

namespace bertha {

bool clips_before_reduction(const OptimizerConfig& config) {
  return config.clip == ClipTime::kBefore && config.max_gradient_norm > 0;
}

float initial_loss_scale(const OptimizerConfig& config) {
  return config.loss_scale == LossScaling::kDynamic ? static_cast<float>(config.initial_loss_scale)
                                                    : 1.0f;
}

LrSchedule learning_rate_schedule(const OptimizerConfig& config, int64_t schedule_steps) {
  LrSchedule schedule{.base = config.base_learning_rate,
                      .warmup_steps = config.warmup_steps,
                      .start_step = config.warmup_steps == 0 ? 0 : config.start_warmup_step,
                      .total_steps = schedule_steps,
                      .floor = config.final_fraction,
                      .tail_steps = config.decay_steps};
  switch (config.schedule) {
    case Schedule::kPolynomial:
      schedule.degree = config.decay_degree;
      break;
    case Schedule::kLinear: {
      const int64_t warm_step = std::max<int64_t>(schedule.start_step + config.warmup_steps, 0);
      schedule.decay = LrSchedule::Decay::kTail;
      schedule.tail_steps = std::max<int64_t>(schedule_steps - warm_step, 1);
      break;
    }
    case Schedule::kCosine:
      schedule.decay = LrSchedule::Decay::kCosine;
      break;
    case Schedule::kConstant:
      schedule.decay = LrSchedule::Decay::kTail;
      schedule.total_steps = std::numeric_limits<int64_t>::max();
      break;
    case Schedule::kWsd:
      schedule.decay = LrSchedule::Decay::kTail;
      break;
  }
  return schedule;
}

LambPrepareRules lamb_prepare_rules(const OptimizerConfig& config, int64_t schedule_steps) {
  return {.schedule = learning_rate_schedule(config, schedule_steps),
          .loss_scale = {.dynamic = config.loss_scale == LossScaling::kDynamic,
                         .growth_interval_steps = config.loss_scale_growth_interval_steps},
          .beta_1 = config.beta_1,
          .beta_2 = config.beta_2,
          .max_gradient_norm = clips_before_reduction(config) ? 0.0 : config.max_gradient_norm,
          .spikes = config.gradient_spike};
}

}  // namespace bertha
