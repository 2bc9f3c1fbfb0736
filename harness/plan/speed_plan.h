#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/plan/compute_time.h"
#include "harness/plan/exchange_time.h"
#include "harness/plan/token_balance.h"

namespace bertha {

/// What the speed of a run depends on beside its configuration.
struct SpeedRequest {
  Config config;
  GemmPrecision precision = GemmPrecision::k16Bit;
  Cluster cluster;
  LengthHistogram lengths = {};  // of the training samples
  int64_t eval_seqs = 10'000;    // of the evaluation set
  int64_t tokens_per_rank = 0;   // of every rank and micro-batch, as `bench step` makes them;
                                 // 0 = what the lengths give
};

/// A part of a step, in its order.
struct StepPart {
  std::string name;
  double ms = 0;
  double hidden_ms = 0;  // behind other parts

  double exposed_ms() const { return ms - hidden_ms; }
};

/// A step of training.
struct StepTime {
  std::vector<StepPart> parts;
  double step_ms = 0;      // sum of what is exposed
  std::string bounded_by;  // what takes most of it, why, and what comes next
  double tokens_per_rank = 0;
  double seqs_per_second = 0;  // of all ranks, evaluations aside
};

/// A run to the accuracy that it aims at, or to its last step.
struct RunTime {
  bool to_target = false;  // samples are those that the benchmark's reference needs
  int64_t samples = 0;
  int64_t steps = 0;
  int64_t evals = 0;
  double eval_seconds = 0;  // of one
  double seconds = 0;       // steps and evaluations; initialization comes before the clock
  double megajoules = 0;    // of all GPUs; at most so much, they may stay below their limit
};

struct SpeedPlan {
  StepTime step;
  RunTime run;
};

/// Predicts steps on H200s from measured ones; pure. kernels/measured/scale.md compares it with
/// steps and runs that were measured.
///
/// Errors    Error(kUsage) where ranks do not fill their nodes, or do not divide the batch.
SpeedPlan predict_speed(const SpeedRequest& request);

}  // namespace bertha
