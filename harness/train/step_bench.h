#pragma once

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "harness/report/step_bench_report.h"

namespace bertha {

struct StepBenchOptions {
  LengthHistogram lengths = {};  // empty = every sequence at full length
  int64_t tokens_per_rank = 0;   // per micro-batch; 0 = from train.global_batch_seqs
  int64_t steps = 50;
  int64_t warmup_steps = 10;
  bool by_operation = false;
};

/// Trains on synthetic batches exactly as training does, from a thread that generates a new batch
/// for each step to the updated weights, and times it on the device's stream without waiting in
/// between. The lengths of sequences repeat every four steps. Reads and writes no files: data and
/// run folder are not needed. log.profile_steps counts from the first warm-up step. All ranks call
/// it; the result is valid on rank 0.
///
/// Errors    as Session; Error(kUsage) for batches that cannot be generated.
StepBenchReport bench_step(const Config& config, const StepBenchOptions& options, World& world);

}  // namespace bertha
