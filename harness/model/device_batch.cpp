#include "harness/model/device_batch.h"

#include <iterator>

#include "kernels/base/divide.h"
#include "kernels/ops/elementwise.h"

namespace bertha {
namespace {

/// The buffers of a batch as parts of one block, and the total number of elements.
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
  buffers.needed_rows = take(capacity.needed);
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

DeviceBatch BatchUploader::upload(const HostBatch& batch, const BatchRows& rows,
                                  const ModelParts& parts) {
  Device& device = *parts.device;
  if (copies_ == nullptr) copies_ = device.make_stream();
  if (moved_ != nullptr) copies_->wait_for(*moved_);

  const auto first_rows = [](const View& buffer, int64_t count) {
    BERTHA_CHECK(count <= buffer.extent(0), "batch of ", count, " rows, capacity ",
                 buffer.extent(0));
    return buffer.rows(0, count);
  };
  const auto send = [&](const View& to, std::span<const int32_t> host) {
    const int64_t begin = to.as<int32_t>() - in_use_.as<int32_t>();
    device.copy(*copies_, arriving_.as<int32_t>() + begin, host.data(),
                std::ssize(host) * size_bytes(DType::kI32));
  };
  const auto copy = [&](const View& buffer, std::span<const int32_t> host, int64_t count) {
    const View to = first_rows(buffer, count);
    send(to, host);
    return to;
  };

  while (!in_flight_.empty() && in_flight_.front().copied->is_done()) in_flight_.pop_front();
  groups_ = batch.groups;

  DeviceBatch on_device;
  on_device.word_ids = copy(buffers_.word_ids, batch.word_ids, rows.tokens);
  on_device.segment_ids = copy(buffers_.segment_ids, batch.segment_ids, rows.tokens);
  on_device.position_ids = copy(buffers_.position_ids, batch.position_ids, rows.tokens);
  if (!batch.rows_by_word.empty()) {
    on_device.rows_by_word = copy(buffers_.rows_by_word, batch.rows_by_word, rows.tokens);
  }
  on_device.cu_seqlens = copy(buffers_.cu_seqlens, batch.cu_seqlens, batch.num_seqs + 1);
  on_device.needed_rows = copy(buffers_.needed_rows, batch.masked_positions, rows.needed);
  send(on_device.needed_rows.rows(rows.masked, rows.seqs),
       batch.cu_seqlens.first(static_cast<size_t>(rows.seqs)));
  on_device.masked_labels = copy(buffers_.masked_labels, batch.masked_labels, rows.masked);
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

  const auto fill_padding = [&parts](const View& indices, int64_t begin, int64_t end) {
    if (!indices.has_data() || begin == end) return;
    parts.ops->run(Fill{.values = indices.rows(begin, end - begin), .value = -1});
  };
  fill_padding(on_device.needed_rows, batch.num_masked, rows.masked);
  fill_padding(on_device.needed_rows, rows.masked + rows.seqs, rows.needed);
  fill_padding(on_device.masked_labels, batch.num_masked, rows.masked);
  fill_padding(on_device.rows_by_word, batch.num_tokens, rows.tokens);
  return on_device;
}

}  // namespace bertha
