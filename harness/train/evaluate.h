#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/pipeline/batch.h"
#include "data/pipeline/transport.h"
#include "harness/model/bert.h"
#include "kernels/collectives.h"

namespace bertha {

/// The evaluation set over all ranks.
struct EvalSetFacts {
  int64_t num_seqs = 0;
  int64_t num_masked = 0;
  // Share of the most frequent masked token: the accuracy of always answering with it, which is the
  // best constant answer.
  double constant_answer_accuracy = 0;
};

/// All ranks call it with their own batches. `path`: data.eval, for the message of an error.
///
/// Errors    Error(kData) on all ranks if the batches of all ranks are not each sequence of one set
///           exactly once, or if no token is masked: the accuracy is then undefined.
EvalSetFacts describe_eval_set(std::span<const HostBatch> batches, int64_t vocab_size,
                               Transport& transport, const std::string& path);

/// "uncertain by up to 2.5 percentage points": the standard error of an accuracy over
/// `masked_tokens` tokens is 0.5 / sqrt(masked_tokens) at most.
std::string uncertainty_text(int64_t masked_tokens);

/// A warning before training about a set whose accuracy would mean little. Empty for 100 masked
/// tokens or more.
std::string warning_of_small_set(const EvalSetFacts& facts, const std::string& path);

/// The benchmark's metric and its companions over the whole evaluation set.
struct EvalResult {
  double mlm_accuracy = 0;  // correct / masked tokens: a mean over tokens, not over batches
  double mlm_loss = 0;      // natural log, mean over masked tokens
  std::optional<double> nsp_accuracy = {};  // callers reset it if train.nsp_weight is 0
  int64_t masked_tokens = 0;
  int64_t seqs = 0;
};

/// Enqueues the sum of the model's LossStats over ranks, in place, on the stream of `collectives`.
void sum_stats_over_ranks(const Bert& model, const ModelParts& parts, Collectives& collectives);

/// Runs this rank's batches through the model without dropout; the result covers all ranks. Calls
/// `after_batch` after enqueuing each. Zeroes the model's statistics.
EvalResult evaluate(Bert& model, std::span<const HostBatch> batches, const ModelParts& parts,
                    Collectives& collectives, const std::function<void()>& after_batch = {});

}  // namespace bertha
