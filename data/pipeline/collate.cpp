#include "data/pipeline/collate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kArrayAlignmentBytes = 64;
constexpr std::align_val_t kBlockAlignment{256};

int64_t num_tokens(const SampleView& sample) {
  return static_cast<int64_t>(sample.token_ids.size());
}

/// Bytes of an int32 array with its padding.
int64_t array_bytes(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(int32_t));
  return round_up(bytes, kArrayAlignmentBytes);
}

/// Hands out the arrays of one block one after the other.
class BlockCarver {
 public:
  explicit BlockCarver(void* block) : at_(static_cast<std::byte*>(block)) {}
  std::span<int32_t> take(int64_t count) {
    auto* first = reinterpret_cast<int32_t*>(at_);
    at_ += array_bytes(count);
    return {first, static_cast<size_t>(count)};
  }

 private:
  std::byte* at_;
};

void allocate_arrays(HostBatch& batch, const HostAllocator& allocate) {
  const int64_t seqs = batch.num_seqs;
  const int64_t tokens = batch.num_tokens;
  const int64_t masked = batch.num_masked;
  batch.block = allocate(4 * array_bytes(tokens) + array_bytes(seqs + 1) + array_bytes(seqs) +
                         2 * array_bytes(masked));
  BlockCarver carver(batch.block.get());
  batch.word_ids = carver.take(tokens);
  batch.segment_ids = carver.take(tokens);
  batch.position_ids = carver.take(tokens);
  batch.rows_by_word = carver.take(tokens);
  batch.cu_seqlens = carver.take(seqs + 1);
  batch.masked_positions = carver.take(masked);
  batch.masked_labels = carver.take(masked);
  batch.next_sentence_labels = carver.take(seqs);
}

/// Rows in ascending order of (id, row), by counting: ten thousand rows take about 0.03 ms with ids
/// up to 30,522 and 0.07 ms with ids up to 119,547.
void sort_rows(std::span<const int32_t> ids, std::span<int32_t> rows) {
  if (ids.empty()) return;
  std::vector<int32_t> next(static_cast<size_t>(std::ranges::max(ids)) + 2);
  for (const int32_t id : ids) ++next[static_cast<size_t>(id) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());  // next[id]: place of its next row
  for (size_t row = 0; row < ids.size(); ++row) {
    const auto place = static_cast<size_t>(next[static_cast<size_t>(ids[row])]++);
    rows[place] = static_cast<int32_t>(row);
  }
}

/// Extends the last group by this sequence, or opens a new one.
void add_to_groups(std::vector<SequenceGroup>& groups, int64_t seq, int64_t first_token,
                   int64_t tokens, int64_t bucket_tokens) {
  const int64_t bucket = round_up(tokens, bucket_tokens);
  if (groups.empty() || groups.back().bucket_tokens != bucket) {
    groups.push_back({.first_seq = seq, .first_token = first_token, .bucket_tokens = bucket});
  }
  SequenceGroup& group = groups.back();
  ++group.num_seqs;
  group.num_tokens += tokens;
  group.longest_seq_tokens = std::max(group.longest_seq_tokens, tokens);
}

}  // namespace

HostBatch collate(std::vector<SampleView> samples, int64_t bucket_tokens,
                  const HostAllocator& allocate) {
  BERTHA_CHECK(bucket_tokens >= 1, "bucket_tokens ", bucket_tokens);
  std::ranges::stable_sort(samples, [](const SampleView& a, const SampleView& b) {
    return a.token_ids.size() > b.token_ids.size();
  });
  HostBatch batch;
  batch.num_seqs = static_cast<int64_t>(samples.size());
  for (const SampleView& sample : samples) {
    batch.num_tokens += num_tokens(sample);
    batch.num_masked += static_cast<int64_t>(sample.masked_positions.size());
  }
  BERTHA_CHECK(batch.num_tokens <= std::numeric_limits<int32_t>::max(), "a micro-batch of ",
               batch.num_tokens, " tokens, want less than 2^31");
  allocate_arrays(batch, allocate);
  batch.sample_ids.reserve(samples.size());

  size_t first_token = 0;
  size_t first_masked = 0;
  batch.cu_seqlens[0] = 0;
  for (size_t seq = 0; seq < samples.size(); ++seq) {
    const SampleView& sample = samples[seq];
    const size_t tokens = sample.token_ids.size();
    const size_t masked = sample.masked_positions.size();
    const auto base = static_cast<int32_t>(first_token);
    std::ranges::copy(sample.token_ids, batch.word_ids.subspan(first_token).begin());
    std::ranges::copy(sample.segment_ids, batch.segment_ids.subspan(first_token).begin());
    const auto positions = batch.position_ids.subspan(first_token, tokens);
    std::iota(positions.begin(), positions.end(), 0);
    for (size_t m = 0; m < masked; ++m) {
      batch.masked_positions[first_masked + m] = base + sample.masked_positions[m];
      batch.masked_labels[first_masked + m] = sample.masked_ids[m];
    }
    batch.next_sentence_labels[seq] = sample.next_sentence_label;
    batch.sample_ids.push_back(sample.id);
    add_to_groups(batch.groups, static_cast<int64_t>(seq), base, num_tokens(sample), bucket_tokens);
    first_token += tokens;
    first_masked += masked;
    batch.cu_seqlens[seq + 1] = static_cast<int32_t>(first_token);
  }
  sort_rows(batch.word_ids, batch.rows_by_word);
  return batch;
}

HostAllocator plain_host_allocator() {
  return [](int64_t bytes) -> std::shared_ptr<void> {
    try {
      return {::operator new(static_cast<size_t>(bytes), kBlockAlignment),
              [](void* block) { ::operator delete(block, kBlockAlignment); }};
    } catch (const std::bad_alloc&) {
      fail(ExitCode::kMemory, "out of memory for a batch of ", bytes, " bytes");
    }
  };
}

}  // namespace bertha
