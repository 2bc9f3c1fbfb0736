#pragma once

#include <cstdint>

namespace bertha {

// Types that the operations of lamb.h share with checkpoints and with the layout of shards.

/// What becomes of an update whose gradient norm is a spike, see spike_of() in lamb_rules.h.
enum class SpikeRule : uint8_t {
  kWarn,    // the update is applied
  kSkip,    // it is left out
  kRewind,  // it is left out, and so are all after it, until the host restores an earlier state
};

/// The optimizer's counters and per-step scalars. Plain data; lives in device memory, so that a
/// training step reads nothing back. One instance per optimizer, the same on every rank.
struct LambState {
  int64_t successful_steps = 0;  // t of the bias correction and of the schedule
  int64_t skipped_steps = 0;     // updates left out: a gradient that was not finite, or a spike
  int64_t skips_in_a_row = 0;
  int64_t steps_since_growth = 0;    // successful steps since the last overflow or growth
  int64_t spikes = 0;                // steps with a spike of the gradient norm in this process
  int64_t last_spike_step = 0;       // counted from 1, skipped steps included
  float loss_scale = 1.0f;           // S: gradients arrive multiplied by it
  float learning_rate = 0.0f;        // of the current update
  float gradient_norm = 0.0f;        // unscaled global norm before clipping
  float gradient_multiplier = 1.0f;  // clip / S, applied to the incoming gradient
  float bias_correction_1 = 1.0f;    // 1 - beta1^t
  float bias_correction_2 = 1.0f;    // 1 - beta2^t
  float usual_log_norm = 0.0f;       // moving mean of ln(gradient_norm), see spike_of()
  float last_spike_norm = 0.0f;      // its gradient_norm
  float last_spike_usual = 0.0f;     // what was usual then
  int32_t skip = 0;                  // 1: this update is left out
  int32_t most_skips_in_a_row = 0;   // highest skips_in_a_row in this process
  int32_t norms_seen = 0;            // in usual_log_norm; counts up to kNormsRemembered
};
// No implicit padding: checkpoints and tests compare states byte by byte.
static_assert(sizeof(LambState) == 6 * sizeof(int64_t) + 9 * sizeof(float) + 3 * sizeof(int32_t));

/// A contiguous piece of one tensor inside a shard. A tensor may have several, with pieces of other
/// tensors between them; all have the same `decay`.
struct LambSegment {
  int64_t tensor = 0;  // row of the norms table; norms of a tensor add up over segments and ranks
  int64_t begin = 0;   // elements, inside the shard
  int64_t end = 0;
  bool decay = true;  // weight decay, and with it the trust ratio
  bool operator==(const LambSegment&) const = default;
};

}  // namespace bertha
