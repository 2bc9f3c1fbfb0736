#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

/// A place in the vocabulary.
using TokenId = int32_t;
/// Entries of the largest vocabulary.
inline constexpr int64_t kMaxVocabEntries = 1'000'000;

struct SpecialTokens {
  TokenId pad = 0;
  TokenId unknown = 0;
  TokenId classify = 0;
  TokenId separator = 0;
  TokenId mask = 0;

  bool operator==(const SpecialTokens&) const = default;
};

/// Limits of a sample; values beyond them are errors that name shard, row and value.
struct SampleLimits {
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;
  int64_t vocab_size = 30522;
};

/// One training example, borrowed from a SampleSet. Tokens include [CLS] and both [SEP].
struct SampleView {
  int64_t id = 0;                             // global: samples of all shards, in file order
  std::span<const TokenId> token_ids;         // [t]
  std::span<const int8_t> segment_ids;        // [t]
  std::span<const int16_t> masked_positions;  // [m]  ascending, inside [1, t)
  std::span<const TokenId> masked_ids;        // [m]  the original tokens there
  int8_t next_sentence_label = 0;             // 0 = real next sentence, 1 = random
};

/// Tokens and masked positions of one or several samples.
struct SampleLength {
  int64_t tokens = 0;
  int64_t masked = 0;
};

/// Many variable-length samples in a few flat arrays: a shard in memory, and the payload of the
/// exchange between ranks. Sample i owns [offsets[i], offsets[i + 1]).
struct SampleSet {
  std::vector<int64_t> ids;                  // [n]
  std::vector<int64_t> token_offsets{0};     // [n + 1]
  std::vector<TokenId> token_ids;            // [sum t]
  std::vector<int8_t> segment_ids;           // [sum t]
  std::vector<int64_t> masked_offsets{0};    // [n + 1]
  std::vector<int16_t> masked_positions;     // [sum m]
  std::vector<TokenId> masked_ids;           // [sum m]
  std::vector<int8_t> next_sentence_labels;  // [n]

  int64_t size() const { return static_cast<int64_t>(ids.size()); }

  SampleView operator[](int64_t index) const {
    const auto i = static_cast<size_t>(index);
    const auto tokens = static_cast<size_t>(token_offsets[i]);
    const auto num_tokens = static_cast<size_t>(token_offsets[i + 1]) - tokens;
    const auto masked = static_cast<size_t>(masked_offsets[i]);
    const auto num_masked = static_cast<size_t>(masked_offsets[i + 1]) - masked;
    return SampleView{.id = ids[i],
                      .token_ids = std::span(token_ids).subspan(tokens, num_tokens),
                      .segment_ids = std::span(segment_ids).subspan(tokens, num_tokens),
                      .masked_positions = std::span(masked_positions).subspan(masked, num_masked),
                      .masked_ids = std::span(masked_ids).subspan(masked, num_masked),
                      .next_sentence_label = next_sentence_labels[i]};
  }

  SampleLength length() const { return {token_offsets.back(), masked_offsets.back()}; }

  /// Makes room for samples of this length in all.
  void reserve(const SampleLength& length) {
    token_ids.reserve(static_cast<size_t>(length.tokens));
    segment_ids.reserve(static_cast<size_t>(length.tokens));
    masked_positions.reserve(static_cast<size_t>(length.masked));
    masked_ids.reserve(static_cast<size_t>(length.masked));
  }

  void append(const SampleView& sample) {
    ids.push_back(sample.id);
    token_ids.insert(token_ids.end(), sample.token_ids.begin(), sample.token_ids.end());
    segment_ids.insert(segment_ids.end(), sample.segment_ids.begin(), sample.segment_ids.end());
    masked_positions.insert(masked_positions.end(), sample.masked_positions.begin(),
                            sample.masked_positions.end());
    masked_ids.insert(masked_ids.end(), sample.masked_ids.begin(), sample.masked_ids.end());
    token_offsets.push_back(static_cast<int64_t>(token_ids.size()));
    masked_offsets.push_back(static_cast<int64_t>(masked_ids.size()));
    next_sentence_labels.push_back(sample.next_sentence_label);
  }
};

/// One invalid value in a shard.
struct Violation {
  int64_t row = 0;
  std::string dataset;
  std::string what;  // value found, value wanted
};
/// Told of each violation; may throw to stop at the first.
using ViolationReport = std::function<void(const Violation&)>;

/// Reports on one row.
struct RowReport {
  int64_t row = 0;
  const ViolationReport& report;

  /// False, for callers that end with it.
  template <class... Parts>
  bool wrong(const char* dataset, const Parts&... parts) const {
    report({.row = row, .dataset = dataset, .what = concat(parts...)});
    return false;
  }
};

/// The number of leading elements that are not zero; calls wrong(text) if another follows them.
template <class T, class Wrong>
size_t live_prefix(std::span<const T> values, const Wrong& wrong) {
  const auto zero = std::ranges::find(values, T{0});
  const auto stray = std::find_if(zero, values.end(), [](T value) { return value != 0; });
  if (stray != values.end()) {
    wrong(concat("element ", stray - values.begin(), " is ", int64_t{*stray},
                 " after a zero, want zeros only at the end"));
  }
  return static_cast<size_t>(zero - values.begin());
}

/// Checks one sample: lengths within the limits and not zero, ids and labels in the vocabulary,
/// segments 0 then 1, masked positions strictly ascending inside [1, t), next-sentence label 0
/// or 1.
void check_sample(const SampleView& sample, int64_t row, const SampleLimits& limits,
                  const ViolationReport& report);

/// The lengths that the receiver of a payload already has.
std::vector<SampleLength> lengths_of(const SampleSet& samples, std::span<const int64_t> rows);

/// Bytes of samples with these lengths in a payload.
int64_t payload_bytes(std::span<const SampleLength> lengths);

/// Samples `rows` of a set as bytes: ids, then tokens, masked positions, masked ids, segments and
/// labels of all of them. Lengths are not in it.
std::vector<std::byte> encode_samples(const SampleSet& samples, std::span<const int64_t> rows);

/// The samples back. Error(kInternal) when the bytes do not fit the lengths.
SampleSet decode_samples(std::span<const std::byte> payload, std::span<const SampleLength> lengths);

}  // namespace bertha
