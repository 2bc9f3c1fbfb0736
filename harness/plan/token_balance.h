#pragma once

#include <cstdint>

#include "data/pipeline/synthetic_steps.h"

namespace bertha {

/// Lengths of MLPerf's training samples, to 32 tokens: of 10,000 sequences, 2,343 have 512 tokens;
/// the mean is 256.
/// Source    16,279,552 samples, Krell et al., arXiv:2107.02027.
LengthHistogram published_lengths();

/// Mean number of tokens of a sequence, and of their squares, when longer ones are cut.
struct LengthMeans {
  double tokens = 0;
  double squared_tokens = 0;
};
LengthMeans means_of(const LengthHistogram& lengths, int64_t max_seq_tokens);

/// Of the tokens of a sequence.
inline constexpr double kMaskedShare = 0.15;

/// How evenly steps fall on ranks.
struct TokenBalance {
  double mean_tokens = 0;  // of a rank and micro-batch
  double most_tokens = 0;  // of the rank with most: mean over steps
  double most_rows = 0;    // the same, rounded up to `row_multiple` in each step
};

/// Draws the lengths of a few steps and assigns them as training does.
///
/// Random    a pure function of the arguments.
TokenBalance balance_of(const SyntheticSteps& steps, int64_t row_multiple);

}  // namespace bertha
