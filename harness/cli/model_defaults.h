#pragma once

#include <cstdint>
#include <string>

#include "harness/config/load.h"

namespace bertha {

/// Sets what follows from the files that a configuration names, where nothing else has set it:
///   - keys under model and data.vocab, by the folder of checkpoint.init;
///   - with `adapts` (--model), what suits further training of that model: AdamW, three epochs, a
///     warm-up over 6 % of the steps, ten evaluations, the limits of data.train, a batch of about
///     16,384 tokens that divides over the ranks, in as few micro-batches as fit into gpu_bytes
///     (the memory of a GPU; 0 = unknown), and the next-sentence loss only if the model has that
///     head and the data have pairs;
///   - train.max_steps, by train.max_epochs.
/// Origins say so. Reads headers, manifests and the next-sentence head, no other tensor, no sample.
///
/// Errors    Error(kData): weights that are not there or of another kind of model, and keys under
///           model that are set to another shape.
void complete_from_files(LoadedConfig& loaded, bool adapts, int num_ranks, int64_t gpu_bytes);

/// Whether there is anything at a path as in locate_weights().
bool are_there(const std::string& weights);

/// Whether weights, as in locate_weights(), have a head for the next sentence; one of zeros was
/// never trained (first_weights()) and does not count.
bool has_next_sentence_head(const std::string& weights);

}  // namespace bertha
