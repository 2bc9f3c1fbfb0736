#pragma once

#include <cstdint>

#include "harness/config/config.h"
#include "kernels/ops/lamb.h"

namespace bertha {

/// Whether a rank's gradient is clipped before the reduction; otherwise the sum is clipped.
bool clips_before_reduction(const OptimizerConfig& config);

/// The initial loss scale; 1 unless it is dynamic.
float initial_loss_scale(const OptimizerConfig& config);

/// The learning rate of every update. Needs and remarks as below.
LrSchedule learning_rate_schedule(const OptimizerConfig& config, int64_t schedule_steps);

/// The configuration's settings for LambPrepare. As published, start_warmup_step has no effect
/// without a warm-up.
///
/// Needs     values within the bounds of their keys; schedule_steps of 1 or more.
LambPrepareRules lamb_prepare_rules(const OptimizerConfig& config, int64_t schedule_steps);

}  // namespace bertha
