#pragma once

#include <cstdint>

#include "harness/config/config.h"
#include "harness/plan/cost_plan.h"

namespace bertha {

/// FLOP/s of a whole training step on one H200, of 24,576 tokens of BERT-large: see
/// kernels/measured/step.md. Smaller steps and models reach less.
inline constexpr double kStepFlopsPerSecond16Bit = 540e12;
inline constexpr double kStepFlopsPerSecondFp8 = 735e12;

/// What a run takes on H200s at that rate, if the exchange between ranks cost nothing.
struct TimeEstimate {
  double flops_per_second = 0;  // of a rank
  double step_ms = 0;
  double seqs_per_second = 0;  // of all ranks
  double seconds = 0;          // all steps and evaluations
};

/// eval_seqs: of the evaluation set.
TimeEstimate estimate_time(const PlanRequest& request, const CostPlan& cost, int64_t eval_seqs);

}  // namespace bertha
