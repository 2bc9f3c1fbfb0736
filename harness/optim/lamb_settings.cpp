#include "harness/optim/lamb_settings.h"

#include "kernels/base/error.h"

namespace bertha {
namespace {

ClipPoint parse_clip(const OptimizerConfig& config) {
  if (config.clip != "after" && config.clip != "before") {
    fail(ExitCode::kUsage, "optimizer.clip is \"", config.clip,
         "\", want after or before; correct it in the config.");
  }
  if (config.max_gradient_norm == 0.0) return ClipPoint::kOff;
  return config.clip == "after" ? ClipPoint::kAfterReduction : ClipPoint::kBeforeReduction;
}

bool parse_dynamic(const OptimizerConfig& config) {
  if (config.loss_scale != "off" && config.loss_scale != "dynamic") {
    fail(ExitCode::kUsage, "optimizer.loss_scale is \"", config.loss_scale,
         "\", want off or dynamic; correct it in the config.");
  }
  return config.loss_scale == "dynamic";
}

SpikeRule parse_spikes(const OptimizerConfig& config) {
  if (config.gradient_spike == "warn") return SpikeRule::kCount;
  if (config.gradient_spike == "skip") return SpikeRule::kSkip;
  if (config.gradient_spike == "rewind") return SpikeRule::kHold;
  fail(ExitCode::kUsage, "optimizer.gradient_spike is \"", config.gradient_spike,
       "\", want warn, skip or rewind; correct it in the config.");
}

/// A negated comparison, so that NaN is caught too.
void check(bool is_good, const char* key, double value, const char* want) {
  if (!is_good) {
    fail(ExitCode::kUsage, "optimizer.", key, " is ", value, ", want ", want,
         "; correct it in the config.");
  }
}

void check_ranges(const OptimizerConfig& config, int64_t schedule_steps) {
  check(config.base_learning_rate >= 0, "base_learning_rate", config.base_learning_rate,
        "0 or more");
  check(config.warmup_steps >= 0, "warmup_steps", static_cast<double>(config.warmup_steps),
        "0 or more");
  check(schedule_steps >= 1, "schedule_steps", static_cast<double>(schedule_steps), "1 or more");
  check(config.decay_degree > 0, "decay_degree", config.decay_degree, "above 0");
  check(config.beta_1 >= 0 && config.beta_1 < 1, "beta_1", config.beta_1, "0 or more, below 1");
  check(config.beta_2 >= 0 && config.beta_2 < 1, "beta_2", config.beta_2, "0 or more, below 1");
  check(config.epsilon > 0, "epsilon", config.epsilon, "above 0");
  check(config.weight_decay >= 0, "weight_decay", config.weight_decay, "0 or more");
  check(config.max_gradient_norm >= 0, "max_gradient_norm", config.max_gradient_norm, "0 or more");
  check(config.initial_loss_scale >= 1, "initial_loss_scale", config.initial_loss_scale,
        "1 or more");
  check(config.loss_scale_growth_interval_steps >= 1, "loss_scale_growth_interval_steps",
        static_cast<double>(config.loss_scale_growth_interval_steps), "1 or more");
  check(config.bucket_mib > 0, "bucket_mib", config.bucket_mib, "above 0");
}

}  // namespace

LambSettings make_lamb_settings(const OptimizerConfig& config, int64_t schedule_steps) {
  check_ranges(config, schedule_steps);
  const bool is_dynamic = parse_dynamic(config);
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
      .spikes = parse_spikes(config),
  };
}

}  // namespace bertha
