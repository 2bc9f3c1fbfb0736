#pragma once

#include <cstdint>
#include <string>

#include "harness/config/load.h"

namespace bertha {

/// Derives keys that nothing else has set from the files that a configuration names:
///   - keys under model and data.vocab, from the folder of checkpoint.init;
///   - with `adapts` (--model), settings for further training of that model: AdamW, three epochs, a
///     warm-up over 6 % of the steps, ten evaluations, the limits of data.train, a batch of about
///     16,384 tokens that divides over the ranks, in as few micro-batches as fit into gpu_bytes
///     (the memory of a GPU; 0 = unknown), and the next-sentence loss only if the model has that
///     head and the data have pairs;
///   - train.max_steps, from train.max_epochs.
/// The keys' origins say so. Reads headers, manifests and the next-sentence head, but no other
/// tensor and no sample.
///
/// Errors    Error(kData) if the weights do not exist or are of another kind of model, or if keys
///           under model are set to another shape.
void complete_from_files(LoadedConfig& loaded, bool adapts, int num_ranks, int64_t gpu_bytes);

/// Whether a path as in locate_weights() exists.
bool weights_exist(const std::string& weights);

/// Whether weights, as in locate_weights(), have a next-sentence head. A head of zeros was never
/// trained (first_weights()) and does not count.
bool has_next_sentence_head(const std::string& weights);

}  // namespace bertha
