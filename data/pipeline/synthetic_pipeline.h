#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/pipeline/batch.h"
#include "data/pipeline/pipeline.h"
#include "data/pipeline/synthetic_steps.h"

namespace bertha {

/// Which steps of SyntheticSteps a rank is given.
struct SyntheticRun {
  int rank = 0;
  int64_t first_step = 0;  // resume: batches before this one are not made
  int64_t num_steps = 0;
  int64_t prefetch_steps = 2;  // batches ready ahead of the consumer
  // Lengths of sequences are those of so many steps, again and again, with other words each time;
  // 0: each step has its own.
  int64_t distinct_lengths = 0;
};

/// Batches made on a thread of their own, without a file. No sequence comes twice: the epoch is the
/// whole run.
///
/// Random    step k depends on (seed, k), and its assignment to ranks as in training.
/// Errors    those of plan_synthetic_step() are rethrown by next(), on every rank.
/// Threads   as Pipeline, but no rank waits for another.
std::unique_ptr<Pipeline> make_synthetic_pipeline(const SyntheticSteps& steps,
                                                  const SyntheticRun& run, HostAllocator allocate);

/// A made-up evaluation set of steps.global_batch_seqs sequences: the part of one rank, in batches
/// of at most `batch_seqs`. The set is the same for every number of ranks. Errors as above.
std::vector<HostBatch> make_synthetic_eval_batches(SyntheticSteps steps, int64_t batch_seqs,
                                                   int rank, const HostAllocator& allocate);

/// The first batch of `inner` as every step from `first_step` on, `num_steps` times.
std::unique_ptr<Pipeline> repeat_first_batch(std::unique_ptr<Pipeline> inner, int64_t first_step,
                                             int64_t num_steps);

}  // namespace bertha
