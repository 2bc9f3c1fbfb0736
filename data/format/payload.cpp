#include "data/format/payload.h"

#include <cstring>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// One sample: id, label; per token: id, segment; per masked position: position, id.
constexpr int64_t kSampleBytes = sizeof(int64_t) + sizeof(int8_t);
constexpr int64_t kTokenBytes = sizeof(int16_t) + sizeof(int8_t);
constexpr int64_t kMaskedBytes = 2 * sizeof(int16_t);

class ByteWriter {
 public:
  explicit ByteWriter(std::byte* at) : at_(at) {}
  template <class T>
  void write(std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(at_, values.data(), values.size_bytes());
    at_ += values.size_bytes();
  }

 private:
  std::byte* at_;
};

class ByteReader {
 public:
  explicit ByteReader(const std::byte* at) : at_(at) {}
  template <class T>
  void read(std::vector<T>& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    if (count == 0) return;
    std::memcpy(values.data(), at_, values.size() * sizeof(T));
    at_ += values.size() * sizeof(T);
  }

 private:
  const std::byte* at_;
};

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
  ByteWriter writer(payload.data());
  for (const int64_t row : rows) {
    const int64_t id = samples[row].id;
    writer.write(std::span(&id, 1));
  }
  for (const int64_t row : rows) writer.write(samples[row].token_ids);
  for (const int64_t row : rows) writer.write(samples[row].masked_positions);
  for (const int64_t row : rows) writer.write(samples[row].masked_ids);
  for (const int64_t row : rows) writer.write(samples[row].segment_ids);
  for (const int64_t row : rows) {
    const int8_t label = samples[row].next_sentence_label;
    writer.write(std::span(&label, 1));
  }
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
  ByteReader reader(payload.data());
  reader.read(samples.ids, seqs);
  reader.read(samples.token_ids, tokens);
  reader.read(samples.masked_positions, masked);
  reader.read(samples.masked_ids, masked);
  reader.read(samples.segment_ids, tokens);
  reader.read(samples.next_sentence_labels, seqs);
  return samples;
}

}  // namespace bertha
