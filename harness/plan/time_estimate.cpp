#include "harness/plan/time_estimate.h"

namespace bertha {

TimeEstimate estimate_time(const PlanRequest& request, const CostPlan& cost, int64_t eval_seqs) {
  TimeEstimate time{.flops_per_second =
                        request.fp8 ? kStepFlopsPerSecondFp8 : kStepFlopsPerSecond16Bit};
  const double of_all = time.flops_per_second * static_cast<double>(request.ranks);
  const double seq_seconds = static_cast<double>(cost.flops_per_seq) / of_all;
  time.step_ms = 1e3 * seq_seconds * static_cast<double>(request.config.train.global_batch_seqs);
  time.seqs_per_second = 1 / seq_seconds;
  // Backward takes twice as long as forward, which is all that evaluation has.
  const double evaluation = seq_seconds / 3 * static_cast<double>(eval_seqs);
  time.seconds =
      cost.flops_per_run / of_all + evaluation * static_cast<double>(cost.run.num_evals());
  return time;
}

}  // namespace bertha
