#pragma once

#include <span>

#include "kernels/base/arguments.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// Learning rate of update n (1-based), with t = n - 1 and k = t + 1 - (start == 0 ? 1 : 0):
/// k - start < warmup ? base (k - start) / (warmup + 1e-6) : base (floor + (1 - floor) f), where f
/// falls from 1 to 0, with x = min(1, k / total):
///   kPolynomial  (1 - x)^degree, not shifted by the warm-up: the published schedule
///   kCosine      (1 + cos(pi y)) / 2, y from 0 at the end of the warm-up to 1 at total
///   kTail        1, and over the last tail_steps before total linearly to 0
/// Never below zero. A constant rate is kTail with no tail and total beyond the run.
struct LrSchedule {
  enum class Decay : uint8_t { kPolynomial, kCosine, kTail };

  double base = 0.0;
  int64_t warmup_steps = 0;
  int64_t start_step = 0;  // may be negative: the warm-up began before step 0
  int64_t total_steps = 1;
  double degree = 1.0;
  Decay decay = Decay::kPolynomial;
  double floor = 0.0;      // share of the base, 0 to 1
  int64_t tail_steps = 0;  // for kTail
};

/// Constant 1 when not dynamic. Dynamic: times backoff at every overflow, times growth after
/// growth_interval_steps successful steps without one.
struct LossScalePolicy {
  bool dynamic = false;
  float growth = 2.0f;
  float backoff = 0.5f;
  float minimum = 1.0f;
  int64_t growth_interval_steps = 2000;
};

/// The numbers of LambPrepare, of which one thread of a device computes an update's scalars.
struct LambPrepareRules {
  LrSchedule schedule;
  LossScalePolicy loss_scale{};
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double max_gradient_norm = 1.0;
  SpikeRule spikes = SpikeRule::kWarn;
};

/// Turns the global gradient norm into this update's scalars: skip or step, learning rate, clip
/// coefficient, bias corrections, next loss scale. All on the device.
///
/// gradient_multiplier = min(1, max_gradient_norm / (norm + 1e-6)) / S; without the clip when
/// max_gradient_norm is 0 (clipped before the reduction already). A sum of squares that is not
/// finite skips: counters and loss scale change, successful_steps does not. A spike that is left
/// out leaves the loss scale alone.
/// Writes    state.
struct LambPrepare {
  static constexpr const char* kName = "lamb_prepare";
  View state;                    // u8  [sizeof(LambState)]
  View gradient_sum_of_squares;  // f64 [1]  of the scaled, reduced gradient
  LambPrepareRules rules;
};

/// A rank's factor for its own gradient before the reduction: min(1, max / (norm / S + 1e-6)); 1 if
/// the norm is not finite, so that infinities reach every rank.
struct ClipFactor {
  static constexpr const char* kName = "clip_factor";
  View gradient_sum_of_squares;  // f64 [1]  of this rank's scaled gradient
  View state;                    // u8  [sizeof(LambState)]
  View factor;                   // f32 [1]  out
  double max_gradient_norm = 1.0;
};

/// Multiplies a gradient, or a part of one, with the factor, in place.
struct ClipLocal {
  static constexpr const char* kName = "clip_local";
  View gradient;  // io  [P]
  View factor;    // f32 [1]
};

/// The numbers of LambMoments, LambStep and AdamWStep.
struct LambMomentsRules {
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
};

/// m, v and the update direction of a shard, and the shard's part of each tensor's norms:
/// g = gradient * multiplier; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
/// u = (m / c1) / (sqrt(v / c2) + eps) + decay * w.
///
/// Letters   N = elements of the shard, X = rows of norms: tensors, or parts that have their own.
/// Needs     segments ascend and do not overlap, their tensors in any order; elements between them
///           are left alone.
/// Writes    m, v, update; norms (overwritten: sums of squares {w, u} over all segments of the
///           tensor, zero for tensors without a segment here). With state.skip everything but norms
///           stays as it is.
/// Source    You et al. 2020 (LAMB), algorithm 2, eps outside the root, bias correction.
struct LambMoments {
  static constexpr const char* kName = "lamb_moments";
  View gradient;  // io  [N]
  View weight;    // f32 [N]  master weights
  View m;         // f32 [N]  in, out
  View v;         // f32 [N]  in, out
  View update;    // f32 [N]  out: u
  View norms;     // f64 [X, 2]  out: sum of w^2, sum of u^2
  View state;     // u8  [sizeof(LambState)]
  std::span<const LambSegment> segments;
  LambMomentsRules rules = {};
};

/// w -= learning_rate * ratio * u, where ratio = |w| / |u| for segments with decay and both norms
/// nonzero, and 1 in all other cases. Also writes the model's copy of the weights.
///
/// Writes    weight, model_weight; with state.skip model_weight = weight, weight unchanged.
struct LambApply {
  static constexpr const char* kName = "lamb_apply";
  View weight;        // f32 [N]  in, out
  View model_weight;  // io  [N]  out
  View update;        // f32 [N]
  View norms;         // f64 [X, 2]  summed over ranks
  View state;         // u8  [sizeof(LambState)]
  std::span<const LambSegment> segments;
};

/// LAMB in one operation, for a shard that has all elements of its tensors, so that no norms are
/// summed over ranks in between: LambMoments followed by LambApply, bit for bit if all views are
/// aligned alike, without memory for the update directions.
///
/// Needs     segments as LambMoments.
/// Writes    m, v, weight, model_weight, norms; with state.skip model_weight = weight, norms = 0.
struct LambStep {
  static constexpr const char* kName = "lamb_step";
  View gradient;      // io  [N]
  View weight;        // f32 [N]  in, out: master weights
  View model_weight;  // io  [N]  out
  View m;             // f32 [N]  in, out
  View v;             // f32 [N]  in, out
  View norms;         // f64 [X, 2]  out: sum of w^2, sum of u^2
  View state;         // u8  [sizeof(LambState)]
  std::span<const LambSegment> segments;
  LambMomentsRules rules = {};
};

/// AdamW in one pass, with the bits of LambMoments followed by LambApply with a ratio of 1.
///
/// Needs     segments as LambMoments.
/// Writes    m, v, weight, model_weight; with state.skip only model_weight = weight.
/// Source    Loshchilov and Hutter 2019, algorithm 2; the learning rate multiplies the decay too.
struct AdamWStep {
  static constexpr const char* kName = "adamw_step";
  View gradient;      // io  [N]
  View weight;        // f32 [N]  in, out: master weights
  View model_weight;  // io  [N]  out
  View m;             // f32 [N]  in, out
  View v;             // f32 [N]  in, out
  View state;         // u8  [sizeof(LambState)]
  std::span<const LambSegment> segments;
  LambMomentsRules rules = {};
};

void validate(const LambPrepare& args);
void validate(const ClipFactor& args);
void validate(const ClipLocal& args);
void validate(const LambMoments& args);
void validate(const LambApply& args);
void validate(const LambStep& args);
void validate(const AdamWStep& args);

}  // namespace bertha
