#include "data/pipeline/synthetic_shards.h"

#include <algorithm>
#include <array>
#include <vector>

#include "data/format/shard_writer.h"
#include "data/random/draws.h"

namespace bertha {
namespace {

// Share of sequences of at most 1/8, 2/8 .. 8/8 of the longest length; 0.7651 are shorter than
// the longest, and the rest have exactly that length.
constexpr std::array<double, 8> kShareUpTo{0.1759, 0.3694, 0.4834, 0.5663,
                                           0.6308, 0.6836, 0.7280, 0.7657};
constexpr int64_t kShortestTokens = 8;
constexpr int16_t kCls = 101;
constexpr int16_t kSep = 102;
constexpr int16_t kMask = 103;
constexpr int64_t kFirstWord = 104;

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
  std::vector<int16_t> tokens, positions, labels;
  std::vector<int8_t> segments;
  for (int64_t i = 0; i < num_seqs; ++i) {
    Draws draws(seed, i);
    const int64_t length = draw_length(draws, limits.max_seq_tokens);
    const int64_t first_sep = length / 2;
    const int64_t num_masked = std::clamp<int64_t>(length * 15 / 100, 1, limits.max_masked_per_seq);
    tokens.clear(), positions.clear(), labels.clear(), segments.clear();
    for (int64_t t = 0; t < length; ++t) {
      tokens.push_back(
          static_cast<int16_t>(kFirstWord + draws.below(limits.vocab_size - kFirstWord)));
      segments.push_back(t > first_sep ? 1 : 0);
    }
    tokens.front() = kCls;
    tokens[static_cast<size_t>(first_sep)] = tokens.back() = kSep;
    for (int64_t m = 0; m < num_masked; ++m) {  // evenly spread between [CLS] and the last [SEP]
      const int64_t position = 1 + m * (length - 2) / num_masked;
      positions.push_back(static_cast<int16_t>(position));
      labels.push_back(tokens[static_cast<size_t>(position)]);
      tokens[static_cast<size_t>(position)] = kMask;
    }
    writer.append({.id = i,
                   .token_ids = tokens,
                   .segment_ids = segments,
                   .masked_positions = positions,
                   .masked_ids = labels,
                   .next_sentence_label = static_cast<int8_t>(draws.below(2))});
  }
  writer.finish();
}

}  // namespace bertha
