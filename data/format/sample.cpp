#include "data/format/sample.h"

#include <algorithm>
#include <array>

#include "data/format/shard_layout.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

void check_ids(const RowReport& row, const char* dataset, std::span<const TokenId> ids,
               int64_t vocab_size) {
  const auto entries = static_cast<uint32_t>(vocab_size);
  const auto outside = [&](TokenId id) { return static_cast<uint32_t>(id) >= entries; };
  uint32_t num_outside = 0;  // without a branch, several ids at a time
  for (const TokenId id : ids) num_outside += outside(id) ? 1 : 0;
  if (num_outside == 0) return;
  const auto found = std::ranges::find_if(ids, outside);
  row.wrong(dataset, "element ", found - ids.begin(), " is id ", *found, ", want 0 to ",
            vocab_size - 1, " (check that this is the vocabulary of the data)");
}

void check_lengths(const RowReport& row, const SampleView& sample, const SampleLimits& limits) {
  const int64_t num_tokens = std::ssize(sample.token_ids);
  const int64_t num_masked = std::ssize(sample.masked_positions);
  if (num_tokens < 1 || num_tokens > limits.max_seq_tokens) {
    row.wrong(dataset_names::kInputIds, num_tokens, " tokens, want 1 to ", limits.max_seq_tokens,
              " (check whether the data was prepared for longer sequences)");
  }
  if (num_masked > limits.max_masked_per_seq) {
    row.wrong(dataset_names::kMaskedPositions, num_masked, " masked positions, want at most ",
              limits.max_masked_per_seq);
  }
}

void check_segments(const RowReport& row, std::span<const int8_t> segments) {
  int8_t previous = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i] < previous || segments[i] > 1) {
      row.wrong(dataset_names::kSegmentIds, "element ", i, " is ", static_cast<int>(segments[i]),
                " after ", static_cast<int>(previous), ", want zeros, then ones");
      return;
    }
    previous = segments[i];
  }
}

void check_positions(const RowReport& row, std::span<const int16_t> positions, int64_t num_tokens) {
  int16_t previous = 0;  // [CLS] is never masked
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] <= previous || positions[i] >= num_tokens) {
      row.wrong(dataset_names::kMaskedPositions, "element ", i, " is ", positions[i], " after ",
                previous, ", want ascending positions from 1 to ", num_tokens - 1);
      return;
    }
    previous = positions[i];
  }
}

// One sample: id, label; per token: id, segment; per masked position: position, id.
constexpr int64_t kSampleBytes = sizeof(int64_t) + sizeof(int8_t);
constexpr int64_t kTokenBytes = sizeof(TokenId) + sizeof(int8_t);
constexpr int64_t kMaskedBytes = sizeof(int16_t) + sizeof(TokenId);

}  // namespace

void check_sample(const SampleView& sample, int64_t row_index, const SampleLimits& limits,
                  const ViolationReport& report) {
  const RowReport row{row_index, report};
  check_lengths(row, sample, limits);
  check_ids(row, dataset_names::kInputIds, sample.token_ids, limits.vocab_size);
  check_segments(row, sample.segment_ids);
  check_positions(row, sample.masked_positions, std::ssize(sample.token_ids));
  check_ids(row, dataset_names::kMaskedIds, sample.masked_ids, limits.vocab_size);
  if (sample.next_sentence_label != 0 && sample.next_sentence_label != 1) {
    row.wrong(dataset_names::kNextSentenceLabels, "label ",
              static_cast<int>(sample.next_sentence_label), ", want 0 or 1");
  }
}

std::vector<SampleLength> lengths_of(const SampleSet& samples, std::span<const int64_t> rows) {
  std::vector<SampleLength> lengths;
  lengths.reserve(rows.size());
  for (const int64_t row : rows) {
    const SampleView sample = samples[row];
    lengths.push_back(
        {.tokens = std::ssize(sample.token_ids), .masked = std::ssize(sample.masked_ids)});
  }
  return lengths;
}

int64_t payload_bytes(std::span<const SampleLength> lengths) {
  int64_t bytes = 0;
  for (const SampleLength& length : lengths) {
    bytes += kSampleBytes + kTokenBytes * length.tokens + kMaskedBytes * length.masked;
  }
  return bytes;
}

std::vector<std::byte> encode_samples(const SampleSet& samples, std::span<const int64_t> rows) {
  std::vector<std::byte> payload(static_cast<size_t>(payload_bytes(lengths_of(samples, rows))));
  auto at = payload.begin();
  const auto write = [&](const auto& values) {
    at = std::ranges::copy(std::as_bytes(std::span(values)), at).out;
  };
  for (const int64_t row : rows) write(std::array{samples[row].id});
  for (const int64_t row : rows) write(samples[row].token_ids);
  for (const int64_t row : rows) write(samples[row].masked_positions);
  for (const int64_t row : rows) write(samples[row].masked_ids);
  for (const int64_t row : rows) write(samples[row].segment_ids);
  for (const int64_t row : rows) write(std::array{samples[row].next_sentence_label});
  return payload;
}

SampleSet decode_samples(std::span<const std::byte> payload,
                         std::span<const SampleLength> lengths) {
  SampleSet samples;
  samples.token_offsets.reserve(lengths.size() + 1);
  samples.masked_offsets.reserve(lengths.size() + 1);
  for (const SampleLength& length : lengths) {
    samples.token_offsets.push_back(samples.token_offsets.back() + length.tokens);
    samples.masked_offsets.push_back(samples.masked_offsets.back() + length.masked);
  }
  const auto seqs = static_cast<int64_t>(lengths.size());
  const int64_t tokens = samples.token_offsets.back();
  const int64_t masked = samples.masked_offsets.back();
  const int64_t bytes = payload_bytes(lengths);
  BERTHA_CHECK(static_cast<int64_t>(payload.size()) == bytes, "a payload of ", payload.size(),
               " bytes, want ", bytes, " for ", seqs, " samples");
  const auto read = [&](auto& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    const auto to = std::as_writable_bytes(std::span(values));
    std::ranges::copy(payload.first(to.size()), to.begin());
    payload = payload.subspan(to.size());
  };
  read(samples.ids, seqs);
  read(samples.token_ids, tokens);
  read(samples.masked_positions, masked);
  read(samples.masked_ids, masked);
  read(samples.segment_ids, tokens);
  read(samples.next_sentence_labels, seqs);
  return samples;
}

}  // namespace bertha
