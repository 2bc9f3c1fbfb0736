#pragma once

#include <cstdint>

#include "harness/config/config.h"
#include "kernels/ops/lamb.h"

namespace bertha {

/// Where the gradient norm is limited.
enum class ClipPoint : uint8_t { kOff, kAfterReduction, kBeforeReduction };

/// OptimizerConfig in the terms of the LAMB operations.
struct LambSettings {
  LrSchedule schedule;
  LossScalePolicy loss_scale;
  float initial_loss_scale = 1.0f;
  ClipPoint clip = ClipPoint::kAfterReduction;
  double max_gradient_norm = 1.0;
  SpikeRule spikes = SpikeRule::kCount;
};

/// As published, start_warmup_step has no effect without a warm-up.
///
/// Needs     values within the bounds of their keys; schedule_steps of 1 or more.
LambSettings make_lamb_settings(const OptimizerConfig& config, int64_t schedule_steps);

}  // namespace bertha
