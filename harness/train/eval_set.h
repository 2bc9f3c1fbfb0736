#pragma once

#include <span>
#include <string>

#include "data/pipeline/batch.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// The evaluation set over all ranks.
struct EvalSetFacts {
  int64_t num_seqs = 0;
  int64_t num_masked = 0;
  // Share of the most frequent masked token: what a predictor scores that always answers with it,
  // the best that a constant answer can do.
  double constant_answer_accuracy = 0;
};

/// All ranks call it with their own batches.
EvalSetFacts describe_eval_set(std::span<const HostBatch> batches, int64_t vocab_size,
                               Transport& transport);

/// What to say before training about a set whose accuracy would say little: its standard error is
/// 0.5 / sqrt(masked tokens) at most. Empty for 100 masked tokens or more.
std::string warning_of_small_set(const EvalSetFacts& facts, const std::string& path);

}  // namespace bertha
