#include "data/pipeline/synthetic_shards.h"

#include <algorithm>
#include <array>

#include "data/format/shard_writer.h"
#include "data/pipeline/synthetic_steps.h"

namespace bertha {
namespace {

// Share of sequences of at most 1/8, 2/8 .. 8/8 of the longest length; 0.7651 are shorter than
// the longest, and the rest have exactly that length.
constexpr std::array<double, 8> kShareUpTo{0.1759, 0.3694, 0.4834, 0.5663,
                                           0.6308, 0.6836, 0.7280, 0.7657};
constexpr int64_t kShortestTokens = 8;

int64_t draw_length(Draws& draws, int64_t longest) {
  const double share = draws.share();
  double below = 0.0;
  for (size_t i = 0; i < kShareUpTo.size(); ++i) {
    if (share < kShareUpTo[i]) {
      const double inside = (share - below) / (kShareUpTo[i] - below);
      const double length =
          (static_cast<double>(i) + inside) / kShareUpTo.size() * static_cast<double>(longest);
      return std::clamp(static_cast<int64_t>(length), std::min(kShortestTokens, longest), longest);
    }
    below = kShareUpTo[i];
  }
  return longest;
}

}  // namespace

void write_synthetic_shard(const std::string& path, int64_t num_seqs, uint64_t seed,
                           const SampleLimits& limits) {
  ShardWriter writer(path, ShardLayout::kVariableLength, limits);
  const SyntheticSteps samples{.max_masked_per_seq = limits.max_masked_per_seq,
                               .vocab_size = limits.vocab_size};
  for (int64_t i = 0; i < num_seqs; ++i) {
    Draws draws(seed, i);
    const int64_t length = draw_length(draws, limits.max_seq_tokens);
    SampleSet one;
    append_synthetic_sample(samples, {.slot = i, .tokens = length}, draws, one);
    writer.append(one[0]);
  }
  writer.finish();
}

}  // namespace bertha
