#include "harness/model/device_batch.h"

namespace bertha {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

BatchUploader::BatchUploader(Arena& arena, const BatchCapacity& capacity) {
  const auto take = [&arena](int64_t count) { return arena.take(DType::kI32, {count}); };
  buffers_.word_ids = take(capacity.tokens);
  buffers_.segment_ids = take(capacity.tokens);
  buffers_.position_ids = take(capacity.tokens);
  buffers_.rows_by_word = take(capacity.tokens);
  buffers_.cu_seqlens = take(capacity.seqs + 1);
  buffers_.masked_positions = take(capacity.masked);
  buffers_.masked_labels = take(capacity.masked);
  buffers_.next_sentence_labels = take(capacity.seqs);
}

DeviceBatch BatchUploader::upload(const HostBatch& batch, const Bert::Parts& parts) {
  const int64_t multiple = parts.device->token_multiple();
  const int64_t tokens = round_up(batch.num_tokens, multiple);
  const int64_t masked = round_up(batch.num_masked, multiple);
  const auto copy = [&parts](const View& buffer, std::span<int32_t> host, int64_t rows) {
    const int64_t count = static_cast<int64_t>(host.size());
    BERTHA_CHECK(rows <= buffer.extent(0), "batch of ", rows, " rows, capacity ", buffer.extent(0));
    parts.device->copy(*parts.stream, buffer.data, host.data(), count * size_bytes(DType::kI32));
    return buffer.rows(0, rows);
  };

  while (!in_flight_.empty() && in_flight_.front().copied->is_done()) in_flight_.pop_front();
  groups_ = batch.groups;

  DeviceBatch device;
  device.word_ids = copy(buffers_.word_ids, batch.word_ids, tokens);
  device.segment_ids = copy(buffers_.segment_ids, batch.segment_ids, tokens);
  device.position_ids = copy(buffers_.position_ids, batch.position_ids, tokens);
  if (!batch.rows_by_word.empty()) {
    device.rows_by_word = copy(buffers_.rows_by_word, batch.rows_by_word, tokens);
  }
  device.cu_seqlens = copy(buffers_.cu_seqlens, batch.cu_seqlens, batch.num_seqs + 1);
  device.first_tokens = device.cu_seqlens.rows(0, batch.num_seqs);
  device.masked_positions = copy(buffers_.masked_positions, batch.masked_positions, masked);
  device.masked_labels = copy(buffers_.masked_labels, batch.masked_labels, masked);
  device.next_sentence_labels =
      copy(buffers_.next_sentence_labels, batch.next_sentence_labels, batch.num_seqs);
  device.groups = groups_;

  const auto fill_padding = [&parts](const View& indices, int64_t live) {
    if (!indices.has_data() || indices.extent(0) == live) return;
    parts.ops->fill({.values = indices.rows(live, indices.extent(0) - live), .value = -1});
  };
  fill_padding(device.masked_positions, batch.num_masked);
  fill_padding(device.masked_labels, batch.num_masked);
  fill_padding(device.rows_by_word, batch.num_tokens);

  InFlight copies{.block = batch.block, .copied = parts.device->make_event()};
  parts.stream->record(*copies.copied);
  in_flight_.push_back(std::move(copies));
  return device;
}

}  // namespace bertha
