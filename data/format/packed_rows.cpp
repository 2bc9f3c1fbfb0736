#include "data/format/packed_rows.h"

#include <algorithm>
#include <numeric>

#include "data/format/dataset_formats.h"
#include "data/format/ragged_rows.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// What does not add up in a pack; empty when all does.
Violation wrong_lengths(const PackedRows& rows, int64_t row, int64_t max_seq_tokens) {
  using namespace dataset_names;
  const auto wrong = [&](const char* dataset, const auto&... words) {
    return Violation{.row = row, .dataset = dataset, .what = concat(words...)};
  };
  const auto seq_tokens = rows.seq_tokens[row];
  const auto seq_masked = rows.seq_masked[row];
  const int64_t tokens = rows.tokens.length(row);
  if (tokens < 1 || tokens > max_seq_tokens) {
    return wrong(kInputIds, tokens, " tokens, want 1 to ", max_seq_tokens,
                 " (was the data made for longer sequences?)");
  }
  const auto low = std::ranges::find_if(seq_tokens, [](int t) { return t < 1; });
  if (low != seq_tokens.end()) {
    return wrong(kPackedTokens, "element ", low - seq_tokens.begin(), " is ", *low,
                 ", want 1 or more");
  }
  const int64_t sum = std::accumulate(seq_tokens.begin(), seq_tokens.end(), int64_t{0});
  if (sum != tokens) {
    return wrong(kPackedTokens, "adds up to ", sum, " tokens, but ", kInputIds, " has ", tokens);
  }
  if (seq_masked.size() != seq_tokens.size()) {
    return wrong(kPackedMasked, seq_masked.size(), " elements, but ", kPackedTokens, " has ",
                 seq_tokens.size(), "; want as many");
  }
  const auto negative = std::ranges::find_if(seq_masked, [](int m) { return m < 0; });
  if (negative != seq_masked.end()) {
    return wrong(kPackedMasked, "element ", negative - seq_masked.begin(), " is ", *negative,
                 ", want 0 or more");
  }
  const int64_t masked = std::accumulate(seq_masked.begin(), seq_masked.end(), int64_t{0});
  if (masked != rows.positions.length(row)) {
    return wrong(kPackedMasked, "adds up to ", masked, ", but ", kMaskedPositions, " has ",
                 rows.positions.length(row), " elements");
  }
  if (rows.next.length(row) != std::ssize(seq_tokens)) {
    return wrong(kNextSentenceLabels, rows.next.length(row), " elements, but ", kPackedTokens,
                 " has ", seq_tokens.size(), "; want as many");
  }
  return {};
}

/// The sequences of a pack whose lengths add up. Their positions count from their own first token.
void append_pack(const PackedRows& rows, int64_t row, SampleSet& samples) {
  const auto seq_tokens = rows.seq_tokens[row];
  std::vector<int16_t> positions;
  size_t token = 0;
  size_t masked = 0;
  for (size_t seq = 0; seq < seq_tokens.size(); ++seq) {
    const auto num_tokens = static_cast<size_t>(seq_tokens[seq]);
    const auto num_masked = static_cast<size_t>(rows.seq_masked[row][seq]);
    positions.clear();
    for (const int16_t position : rows.positions[row].subspan(masked, num_masked)) {
      // Saturates: a wrong one must not become a right one.
      positions.push_back(static_cast<int16_t>(
          std::max(static_cast<int>(position) - static_cast<int>(token), INT16_MIN)));
    }
    samples.append({.token_ids = rows.tokens[row].subspan(token, num_tokens),
                    .segment_ids = rows.segments[row].subspan(token, num_tokens),
                    .masked_positions = positions,
                    .masked_ids = rows.labels[row].subspan(masked, num_masked),
                    .next_sentence_label = rows.next[row][seq]});
    token += num_tokens;
    masked += num_masked;
  }
}

}  // namespace

std::vector<int64_t> unpack_rows(PackedRows rows, int64_t max_seq_tokens,
                                 const ViolationReport& report, SampleSet& samples) {
  using namespace dataset_names;
  match_lengths(kSegmentIds, kInputIds, rows.segments, rows.tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, rows.labels, rows.positions.offsets, report);
  samples.token_ids.reserve(rows.tokens.values.size());
  samples.segment_ids.reserve(rows.tokens.values.size());
  std::vector<int64_t> row_offsets;
  for (int64_t row = 0; row < rows.tokens.size(); ++row) {
    row_offsets.push_back(samples.size());
    if (const Violation wrong = wrong_lengths(rows, row, max_seq_tokens); !wrong.what.empty()) {
      report(wrong);
      continue;
    }
    append_pack(rows, row, samples);
  }
  row_offsets.push_back(samples.size());
  return row_offsets;
}

}  // namespace bertha
