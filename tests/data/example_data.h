#pragma once

#include <random>
#include <set>
#include <string>

#include "data/format/sample.h"
#include "data/format/shard_writer.h"
#include "kernels/base/error.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha {

inline constexpr TokenId kExampleCls = 101;
inline constexpr TokenId kExampleSep = 102;

/// Valid samples of all lengths the limits allow, the shortest and the longest among them:
/// [CLS] A [SEP] B [SEP], at least one masked position, none of them a special token.
inline SampleSet example_samples(int64_t num_samples, uint64_t seed,
                                 const SampleLimits& limits = {}) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  SampleSet samples;
  for (int64_t i = 0; i < num_samples; ++i) {
    const int64_t spread = limits.max_seq_tokens - 4;  // lengths 5 .. max
    const int64_t length = i % 7 == 0 ? 5 : i % 7 == 1 ? 4 + spread : 5 + below(spread);
    const int64_t first_sep = 2 + below(length - 4);
    std::vector<TokenId> ids, labels;
    std::vector<int16_t> positions;
    std::vector<int8_t> segments;
    std::set<int64_t> masked;
    const int64_t most_masked = std::min(limits.max_masked_per_seq, 1 + length / 7);
    const int64_t num_masked = i % 5 == 0 ? most_masked : 1 + below(most_masked);
    while (static_cast<int64_t>(masked.size()) < std::min<int64_t>(num_masked, length - 3)) {
      const int64_t position = 1 + below(length - 2);
      if (position != first_sep) masked.insert(position);
    }
    for (int64_t t = 0; t < length; ++t) {
      const bool special = t == 0 || t == first_sep || t == length - 1;
      const int64_t word = 103 + below(limits.vocab_size - 103);
      ids.push_back(t == 0 ? kExampleCls : special ? kExampleSep : static_cast<TokenId>(word));
      segments.push_back(t > first_sep ? 1 : 0);
    }
    for (const int64_t position : masked) {
      positions.push_back(static_cast<int16_t>(position));
      labels.push_back(static_cast<TokenId>(103 + below(limits.vocab_size - 103)));
    }
    samples.append({.id = i,
                    .token_ids = ids,
                    .segment_ids = segments,
                    .masked_positions = positions,
                    .masked_ids = labels,
                    .next_sentence_label = static_cast<int8_t>(below(2))});
  }
  return samples;
}

inline void write_shard(const std::string& path, ShardLayout layout, const SampleSet& samples,
                        const SampleLimits& limits = {}) {
  ShardWriter writer(path, layout, limits);
  for (int64_t i = 0; i < samples.size(); ++i) writer.append(samples[i]);
  writer.finish();
}

}  // namespace bertha
