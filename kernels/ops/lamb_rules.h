#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/base/host_device.h"
#include "kernels/ops/lamb.h"

namespace bertha {

// The scalar decisions of an update and the arithmetic of one element: one source for every
// backend.

/// f of LrSchedule, 1 to 0.
BERTHA_HOST_DEVICE inline double remaining_rate(const LrSchedule& schedule, int64_t k) {
  const auto step = static_cast<double>(k);
  const auto total = static_cast<double>(schedule.total_steps);
  if (k >= schedule.total_steps) return 0.0;
  if (schedule.decay == LrSchedule::Decay::kCosine) {
    constexpr double kPi = 3.14159265358979323846;
    const auto warm = static_cast<double>(schedule.start_step + schedule.warmup_steps);
    const double begin = warm < 0.0 ? 0.0 : warm;
    return step <= begin ? 1.0 : 0.5 * (1.0 + std::cos(kPi * (step - begin) / (total - begin)));
  }
  if (schedule.decay == LrSchedule::Decay::kTail) {
    const auto tail = static_cast<double>(schedule.tail_steps);
    return total - step >= tail ? 1.0 : (total - step) / tail;
  }
  return std::pow(1.0 - step / total, schedule.degree);
}

/// Learning rate after `successful_steps` updates, see LrSchedule. Zero before a positive
/// start_step, for which the formula would be negative.
BERTHA_HOST_DEVICE inline double scheduled_learning_rate(const LrSchedule& schedule,
                                                         int64_t successful_steps) {
  // The published code runs one update ahead when the warm-up does not begin at step 0.
  const int64_t k = successful_steps + (schedule.start_step == 0 ? 0 : 1);
  const int64_t warm = k - schedule.start_step;
  if (warm < schedule.warmup_steps) {
    const double rise =
        static_cast<double>(warm) / (static_cast<double>(schedule.warmup_steps) + 1e-6);
    return warm < 0 ? 0.0 : schedule.base * rise;
  }
  const double left = remaining_rate(schedule, k);
  return schedule.base *
         (schedule.floor == 0.0 ? left : schedule.floor + (1.0 - schedule.floor) * left);
}

/// min(1, max / (norm + 1e-6)); 1 when max is 0.
BERTHA_HOST_DEVICE inline double clip_coefficient(double norm, double max_norm) {
  if (max_norm == 0.0) return 1.0;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

/// False for NaN as well: comparisons with NaN are false.
BERTHA_HOST_DEVICE inline bool is_finite_sum_of_squares(double sum) {
  return sum >= 0.0 && sum <= DBL_MAX;
}

/// The value of ClipFactor: 1 if the gradient does not change.
BERTHA_HOST_DEVICE inline float local_clip_factor(const LambState& state, double sum_of_squares,
                                                  double max_norm) {
  if (!is_finite_sum_of_squares(sum_of_squares)) return 1.0f;
  const double norm = std::sqrt(sum_of_squares) / static_cast<double>(state.loss_scale);
  return static_cast<float>(clip_coefficient(norm, max_norm));
}

/// A spike is a gradient norm of more than this many times the usual one. From step to step norms
/// differ by some tens of percent.
inline constexpr double kSpikeTimes = 5.0;
/// The usual norm is a mean over about this many steps; earlier steps are never a spike.
inline constexpr int32_t kNormsRemembered = 32;

/// Whether a finite norm is a spike. Takes it into the usual norm: at most as the largest that is
/// none, so that one spike hardly moves it, and a norm that stays high soon becomes the usual one.
BERTHA_HOST_DEVICE inline bool spike_of(LambState& state, double norm) {
  if (!(norm > 0.0)) return false;
  const double usual = static_cast<double>(state.usual_log_norm);
  const double most = std::log(kSpikeTimes);
  double above = std::log(norm) - usual;
  const bool is_known = state.norms_seen >= kNormsRemembered;
  const bool is_spike = is_known && above > most;
  if (is_spike) {
    state.spikes += 1;
    state.last_spike_step = state.successful_steps + state.skipped_steps + 1;
    state.last_spike_norm = static_cast<float>(norm);
    state.last_spike_usual = static_cast<float>(std::exp(usual));
  }
  if (is_known && above > most) above = most;
  if (is_known && above < -most) above = -most;
  if (!is_known) state.norms_seen += 1;
  state.usual_log_norm = static_cast<float>(usual + above / state.norms_seen);
  return is_spike;
}

BERTHA_HOST_DEVICE inline void record_skipped_step(LambState& state) {
  state.skip = 1;
  state.skipped_steps += 1;
  state.skips_in_a_row += 1;
  if (state.skips_in_a_row > state.most_skips_in_a_row) {
    state.most_skips_in_a_row = static_cast<int32_t>(state.skips_in_a_row);
  }
}

BERTHA_HOST_DEVICE inline void record_overflow(LambState& state, const LossScalePolicy& policy) {
  record_skipped_step(state);
  state.steps_since_growth = 0;
  if (!policy.dynamic) return;
  const float lower = state.loss_scale * policy.backoff;
  state.loss_scale = lower > policy.minimum ? lower : policy.minimum;
}

BERTHA_HOST_DEVICE inline void record_successful_step(LambState& state,
                                                      const LossScalePolicy& policy) {
  state.skip = 0;
  state.successful_steps += 1;
  state.skips_in_a_row = 0;
  state.steps_since_growth += 1;
  if (!policy.dynamic || state.steps_since_growth < policy.growth_interval_steps) return;
  state.steps_since_growth = 0;
  const float higher = state.loss_scale * policy.growth;
  // An infinite scale could never decrease again.
  if (higher <= FLT_MAX) state.loss_scale = higher;
}

/// LambPrepare on values.
BERTHA_HOST_DEVICE inline void prepare_update(LambState& state, double gradient_sum_of_squares,
                                              const LambPrepareRules& rules) {
  const double scale = static_cast<double>(state.loss_scale);
  const double norm = std::sqrt(gradient_sum_of_squares) / scale;
  state.gradient_norm = static_cast<float>(norm);
  if (rules.spikes == SpikeRule::kRewind && state.last_spike_step > 0) {
    state.skip = 1;  // no row of skips: this state will be thrown away
    state.skipped_steps += 1;
    return;
  }
  if (!is_finite_sum_of_squares(gradient_sum_of_squares)) {
    record_overflow(state, rules.loss_scale);
    return;
  }
  if (spike_of(state, norm) && rules.spikes != SpikeRule::kWarn) {
    record_skipped_step(state);
    return;
  }
  state.learning_rate =
      static_cast<float>(scheduled_learning_rate(rules.schedule, state.successful_steps));
  state.gradient_multiplier =
      static_cast<float>(clip_coefficient(norm, rules.max_gradient_norm) / scale);
  record_successful_step(state, rules.loss_scale);
  const double t = static_cast<double>(state.successful_steps);
  state.bias_correction_1 = static_cast<float>(1.0 - std::pow(rules.beta_1, t));
  state.bias_correction_2 = static_cast<float>(1.0 - std::pow(rules.beta_2, t));
}

/// The constants of LambMoments, LambStep and AdamWStep for one segment, rounded to f32 once.
struct LambCoefficients {
  float gradient_multiplier;
  float beta_1;
  float one_minus_beta_1;
  float beta_2;
  float one_minus_beta_2;
  float inverse_correction_1;
  float inverse_correction_2;
  float epsilon;
  float decay;  // 0 for segments without decay
};

BERTHA_HOST_DEVICE inline LambCoefficients lamb_coefficients(const LambMomentsRules& rules,
                                                             const LambState& state, bool decay) {
  LambCoefficients c;
  c.gradient_multiplier = state.gradient_multiplier;
  c.beta_1 = static_cast<float>(rules.beta_1);
  c.one_minus_beta_1 = static_cast<float>(1.0 - rules.beta_1);
  c.beta_2 = static_cast<float>(rules.beta_2);
  c.one_minus_beta_2 = static_cast<float>(1.0 - rules.beta_2);
  c.inverse_correction_1 = 1.0f / state.bias_correction_1;
  c.inverse_correction_2 = 1.0f / state.bias_correction_2;
  c.epsilon = static_cast<float>(rules.epsilon);
  c.decay = decay ? static_cast<float>(rules.weight_decay) : 0.0f;
  return c;
}

/// The update direction u of one element from its advanced m and v.
BERTHA_HOST_DEVICE inline float lamb_direction_of(const LambCoefficients& c, float w, float m,
                                                  float v) {
  return m * c.inverse_correction_1 / (std::sqrt(v * c.inverse_correction_2) + c.epsilon) +
         c.decay * w;
}

/// Advances m and v of one element and returns its update direction u.
BERTHA_HOST_DEVICE inline float lamb_direction(const LambCoefficients& c, float gradient, float w,
                                               float& m, float& v) {
  const float g = gradient * c.gradient_multiplier;
  m = c.beta_1 * m + c.one_minus_beta_1 * g;
  v = c.beta_2 * v + c.one_minus_beta_2 * (g * g);
  return lamb_direction_of(c, w, m, v);
}

/// |w| / |u| from the sums of squares; 1 if the tensor has no decay or a norm is zero.
BERTHA_HOST_DEVICE inline float trust_ratio(double sum_w2, double sum_u2, bool decay) {
  if (!decay || !(sum_w2 > 0.0) || !(sum_u2 > 0.0)) return 1.0f;
  return static_cast<float>(std::sqrt(sum_w2 / sum_u2));
}

}  // namespace bertha
