#pragma once

#include <functional>
#include <span>

#include "data/pipeline/batch.h"
#include "harness/model/bert.h"
#include "kernels/collectives.h"

namespace bertha {

/// The benchmark's metric and its companions over the whole evaluation set.
struct EvalResult {
  double mlm_accuracy = 0;  // correct / masked tokens: a mean over tokens, not over batches
  double mlm_loss = 0;      // natural log, mean over masked tokens
  double nsp_accuracy = 0;
  int64_t masked_tokens = 0;
  int64_t seqs = 0;
};

/// Enqueues the sum of the model's LossStats over ranks, in place, on the stream of `collectives`.
void sum_stats_over_ranks(const Bert& model, const ModelParts& parts, Collectives& collectives);

/// This rank's batches through the model without dropout; the result is that of all ranks. Calls
/// `after_batch` when each has been handed to the device.
EvalResult evaluate(Bert& model, std::span<const HostBatch> batches, const ModelParts& parts,
                    Collectives& collectives, const std::function<void()>& after_batch = {});

}  // namespace bertha
