#include "data/format/payload.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// One sample: id, label; per token: id, segment; per masked position: position, id.
constexpr int64_t kSampleBytes = sizeof(int64_t) + sizeof(int8_t);
constexpr int64_t kTokenBytes = sizeof(int16_t) + sizeof(int8_t);
constexpr int64_t kMaskedBytes = 2 * sizeof(int16_t);

}  // namespace

int64_t payload_bytes(const SampleLength& length) {
  return kSampleBytes + kTokenBytes * length.tokens + kMaskedBytes * length.masked;
}

std::vector<std::byte> encode_samples(const SampleSet& samples, std::span<const int64_t> rows) {
  int64_t bytes = 0;
  for (const int64_t row : rows) {
    const SampleView sample = samples[row];
    bytes += payload_bytes(
        {.tokens = std::ssize(sample.token_ids), .masked = std::ssize(sample.masked_ids)});
  }
  std::vector<std::byte> payload(static_cast<size_t>(bytes));
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
  const int64_t bytes = kSampleBytes * seqs + kTokenBytes * tokens + kMaskedBytes * masked;
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
