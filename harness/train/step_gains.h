#pragma once

#include <cstdint>

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "harness/report/gains_report.h"

namespace bertha {

struct StepGainsOptions {
  LengthHistogram lengths = {};  // empty = every sequence at full length
  int64_t tokens_per_rank = 0;   // per micro-batch; 0 = what train.global_batch_seqs gives
  int64_t steps = 20;            // of each variant, rounded up to whole turns
};

/// Fills in the rows of steps and evaluations: the two variants of each run in turns, a step on
/// every batch, so that both have the same clocks. Weights are random and at most two models are
/// in memory. Rows with a `reason` are left out, and one that cannot run gets one. All ranks call
/// it with the same rows; the result is of use on rank 0.
///
/// Errors    those of bench_step(), for the configuration as given.
void measure_step_gains(const Config& config, const StepGainsOptions& options, World& world,
                        GainsReport& report);

}  // namespace bertha
