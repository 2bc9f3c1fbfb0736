#pragma once

#include <cstdint>
#include <string>

#include "harness/config/config.h"

namespace bertha {

struct DumpOptions {
  std::string folder;
  int64_t steps = 1;
  bool weights = false;
};

/// Writes the batches that a run of `config` trains on, so that another program can train on them:
///
///   batch_00000001.safetensors  the global batch of step 1, and so on; un-padded, sequences in the
///                               order of the loader of one rank, micro-batches one after another
///     sample_ids            I64 [B]      of all samples of data.train, in file order
///     cu_seqlens            I32 [B + 1]  first token of each sequence, then T
///     input_ids             I32 [T]
///     token_type_ids        I32 [T]
///     position_ids          I32 [T]
///     masked_positions      I32 [M]      rows in [0, T)
///     masked_labels         I32 [M]      the original ids there
///     next_sentence_labels  I32 [B]      0 = real next sentence, 1 = random
///     seqs_per_micro_batch  I32 [K]
///   config.yaml                 every key with its value
///   config.json                 the model's, as in checkpoints
///   model.safetensors           with `weights`: as of step 0, f32, under Hugging Face names
///
/// The samples of a step do not depend on the number of ranks, except with data.order published.
/// Dropout is not written: set it to 0 in both programs to compare them.
///
/// Errors    as reading the data; Error(kUsage) for more steps than train.max_steps; Error(kData)
///           if a file cannot be written.
void dump_batches(const Config& config, const DumpOptions& options);

}  // namespace bertha
