#include "harness/model/device_batch.h"

#include "kernels/base/divide.h"
#include "kernels/ops/elementwise.h"

namespace bertha {
namespace {

/// The buffers of a batch as parts of one block, and their elements in all.
int64_t cut(const View& block, const BatchRows& capacity, DeviceBatch& buffers) {
  int64_t begin = 0;
  const auto take = [&](int64_t count) {
    constexpr int64_t kAlignment = 64;  // elements
    const View buffer = block.has_data() ? block.rows(begin, count) : View();
    begin += round_up(count, kAlignment);
    return buffer;
  };
  buffers.word_ids = take(capacity.tokens);
  buffers.segment_ids = take(capacity.tokens);
  buffers.position_ids = take(capacity.tokens);
  buffers.rows_by_word = take(capacity.tokens);
  buffers.cu_seqlens = take(capacity.seqs + 1);
  buffers.masked_positions = take(capacity.masked);
  buffers.masked_labels = take(capacity.masked);
  buffers.next_sentence_labels = take(capacity.seqs);
  return begin;
}

}  // namespace

BatchUploader::BatchUploader(Arena& arena, const BatchRows& capacity) {
  const int64_t elements = cut(View(), capacity, buffers_);
  arriving_ = arena.take(DType::kI32, {elements});
  in_use_ = arena.take(DType::kI32, {elements});
  cut(in_use_, capacity, buffers_);
}

DeviceBatch BatchUploader::upload(const HostBatch& batch, const ModelParts& parts) {
  Device& device = *parts.device;
  if (copies_ == nullptr) copies_ = device.make_stream();
  if (moved_ != nullptr) copies_->wait_for(*moved_);

  const int64_t tokens = device.padded_rows(batch.num_tokens);
  const int64_t masked = device.padded_rows(batch.num_masked);
  const auto copy = [&](const View& buffer, std::span<int32_t> host, int64_t rows) {
    const int64_t count = static_cast<int64_t>(host.size());
    BERTHA_CHECK(rows <= buffer.extent(0), "batch of ", rows, " rows, capacity ", buffer.extent(0));
    const int64_t begin = buffer.as<int32_t>() - in_use_.as<int32_t>();
    device.copy(*copies_, arriving_.as<int32_t>() + begin, host.data(),
                count * size_bytes(DType::kI32));
    return buffer.rows(0, rows);
  };

  while (!in_flight_.empty() && in_flight_.front().copied->is_done()) in_flight_.pop_front();
  groups_ = batch.groups;

  DeviceBatch on_device;
  on_device.word_ids = copy(buffers_.word_ids, batch.word_ids, tokens);
  on_device.segment_ids = copy(buffers_.segment_ids, batch.segment_ids, tokens);
  on_device.position_ids = copy(buffers_.position_ids, batch.position_ids, tokens);
  if (!batch.rows_by_word.empty()) {
    on_device.rows_by_word = copy(buffers_.rows_by_word, batch.rows_by_word, tokens);
  }
  on_device.cu_seqlens = copy(buffers_.cu_seqlens, batch.cu_seqlens, batch.num_seqs + 1);
  on_device.first_tokens = on_device.cu_seqlens.rows(0, batch.num_seqs);
  on_device.masked_positions = copy(buffers_.masked_positions, batch.masked_positions, masked);
  on_device.masked_labels = copy(buffers_.masked_labels, batch.masked_labels, masked);
  on_device.next_sentence_labels =
      copy(buffers_.next_sentence_labels, batch.next_sentence_labels, batch.num_seqs);
  on_device.groups = groups_;
  on_device.live_tokens = on_device.cu_seqlens.rows(batch.num_seqs, 1);

  InFlight copied{.block = batch.block, .copied = device.make_event()};
  copies_->record(*copied.copied);
  parts.stream->wait_for(*copied.copied);
  device.copy(*parts.stream, in_use_.data, arriving_.data, in_use_.bytes());
  moved_ = device.make_event();
  parts.stream->record(*moved_);
  in_flight_.push_back(std::move(copied));

  const auto fill_padding = [&parts](const View& indices, int64_t live) {
    if (!indices.has_data() || indices.extent(0) == live) return;
    parts.ops->run(Fill{.values = indices.rows(live, indices.extent(0) - live), .value = -1});
  };
  fill_padding(on_device.masked_positions, batch.num_masked);
  fill_padding(on_device.masked_labels, batch.num_masked);
  fill_padding(on_device.rows_by_word, batch.num_tokens);
  return on_device;
}

}  // namespace bertha
