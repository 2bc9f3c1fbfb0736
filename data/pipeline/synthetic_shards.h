#pragma once

#include <cstdint>
#include <string>

#include "data/format/shard_file.h"

namespace bertha {

/// Writes a shard of random samples in the variable-length layout. Lengths are spread as those of
/// Wikipedia sequences, scaled to limits.max_seq_tokens; 15 % of the tokens are masked.
///
/// Random    a pure function of the arguments other than path.
/// Source    lengths: the histogram of Krell et al., Efficient Sequence Packing without
///           Cross-contamination (arXiv:2107.02027), in steps of 64 tokens.
void write_synthetic_shard(const std::string& path, int64_t num_seqs, uint64_t seed,
                           const SampleLimits& limits);

}  // namespace bertha
