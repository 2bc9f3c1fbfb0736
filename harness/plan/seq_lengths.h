#pragma once

#include <cstdint>

#include "data/pipeline/synthetic_steps.h"

namespace bertha {

/// Lengths of MLPerf's training samples, to 32 tokens: of 10,000 sequences, 2,343 have 512 tokens;
/// the mean is 256.
/// Source    16,279,552 samples, Krell et al., arXiv:2107.02027.
LengthHistogram published_lengths();

/// Means of a sequence's number of tokens and of its square, if longer sequences are truncated.
struct LengthMeans {
  double tokens = 0;
  double squared_tokens = 0;
};
LengthMeans means_of(const LengthHistogram& lengths, int64_t max_seq_tokens);

/// The share of a sequence's tokens that are masked.
inline constexpr double kMaskedShare = 0.15;

}  // namespace bertha
