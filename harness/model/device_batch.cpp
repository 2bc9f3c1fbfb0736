#include "harness/model/device_batch.h"

namespace bertha {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

BatchUploader::BatchUploader(Arena& arena, const BatchRows& capacity) {
  const auto take = [&arena](int64_t count) { return arena.take(DType::kI32, {count}); };
  for (Slot& slot : slots_) {
    slot.buffers.word_ids = take(capacity.tokens);
    slot.buffers.segment_ids = take(capacity.tokens);
    slot.buffers.position_ids = take(capacity.tokens);
    slot.buffers.rows_by_word = take(capacity.tokens);
    slot.buffers.cu_seqlens = take(capacity.seqs + 1);
    slot.buffers.masked_positions = take(capacity.masked);
    slot.buffers.masked_labels = take(capacity.masked);
    slot.buffers.next_sentence_labels = take(capacity.seqs);
  }
}

DeviceBatch BatchUploader::upload(const HostBatch& batch, const ModelParts& parts) {
  if (copies_ == nullptr) copies_ = parts.device->make_stream();
  // All work on the other slot has been enqueued by now.
  Slot& previous = slots_[(next_slot_ + kSlots - 1) % kSlots];
  previous.consumed = parts.device->make_event();
  parts.stream->record(*previous.consumed);
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % kSlots;
  if (slot.consumed != nullptr) copies_->wait_for(*slot.consumed);

  const int64_t multiple = parts.device->token_multiple();
  const int64_t tokens = round_up(batch.num_tokens, multiple);
  const int64_t masked = round_up(batch.num_masked, multiple);
  const auto copy = [&](const View& buffer, std::span<int32_t> host, int64_t rows) {
    const int64_t count = static_cast<int64_t>(host.size());
    BERTHA_CHECK(rows <= buffer.extent(0), "batch of ", rows, " rows, capacity ", buffer.extent(0));
    parts.device->copy(*copies_, buffer.data, host.data(), count * size_bytes(DType::kI32));
    return buffer.rows(0, rows);
  };

  while (!in_flight_.empty() && in_flight_.front().copied->is_done()) in_flight_.pop_front();
  slot.groups = batch.groups;

  DeviceBatch device;
  device.word_ids = copy(slot.buffers.word_ids, batch.word_ids, tokens);
  device.segment_ids = copy(slot.buffers.segment_ids, batch.segment_ids, tokens);
  device.position_ids = copy(slot.buffers.position_ids, batch.position_ids, tokens);
  if (!batch.rows_by_word.empty()) {
    device.rows_by_word = copy(slot.buffers.rows_by_word, batch.rows_by_word, tokens);
  }
  device.cu_seqlens = copy(slot.buffers.cu_seqlens, batch.cu_seqlens, batch.num_seqs + 1);
  device.first_tokens = device.cu_seqlens.rows(0, batch.num_seqs);
  device.masked_positions = copy(slot.buffers.masked_positions, batch.masked_positions, masked);
  device.masked_labels = copy(slot.buffers.masked_labels, batch.masked_labels, masked);
  device.next_sentence_labels =
      copy(slot.buffers.next_sentence_labels, batch.next_sentence_labels, batch.num_seqs);
  device.groups = slot.groups;
  device.live_tokens = batch.num_tokens;

  InFlight copied{.block = batch.block, .copied = parts.device->make_event()};
  copies_->record(*copied.copied);
  parts.stream->wait_for(*copied.copied);
  in_flight_.push_back(std::move(copied));

  const auto fill_padding = [&parts](const View& indices, int64_t live) {
    if (!indices.has_data() || indices.extent(0) == live) return;
    parts.ops->run(Fill{.values = indices.rows(live, indices.extent(0) - live), .value = -1});
  };
  fill_padding(device.masked_positions, batch.num_masked);
  fill_padding(device.masked_labels, batch.num_masked);
  fill_padding(device.rows_by_word, batch.num_tokens);
  return device;
}

}  // namespace bertha
