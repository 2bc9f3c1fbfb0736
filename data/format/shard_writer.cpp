#include "data/format/shard_writer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace bertha {
namespace {

using namespace dataset_names;

/// Rows of the values [offsets[i], offsets[i + 1]), filled with zeros to the width.
template <class T>
void append_padded(Hdf5Output& file, const char* dataset, const std::vector<T>& values,
                   const std::vector<int64_t>& offsets, int64_t width) {
  const int64_t num_rows = std::ssize(offsets) - 1;
  std::vector<T> padded(static_cast<size_t>(num_rows * width));
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto at = static_cast<size_t>(row);
    std::copy(values.begin() + offsets[at], values.begin() + offsets[at + 1],
              padded.begin() + row * width);
  }
  file.append(dataset, num_rows, padded);
}

void write_variable_length(const SampleSet& block, Hdf5Output& file) {
  file.append_lists(kInputIds, block.token_ids, block.token_offsets);
  file.append_lists(kSegmentIds, block.segment_ids, block.token_offsets);
  file.append_lists(kMaskedPositions, block.masked_positions, block.masked_offsets);
  file.append_lists(kMaskedIds, block.masked_ids, block.masked_offsets);
  file.append(kNextSentenceLabels, block.size(), block.next_sentence_labels);
}

void write_fixed_length(const SampleSet& block, const SampleLimits& limits, Hdf5Output& file) {
  const int64_t tokens = limits.max_seq_tokens;
  const int64_t masked = limits.max_masked_per_seq;
  const std::vector<int8_t> ones(block.token_ids.size(), 1);
  append_padded(file, kInputIds, block.token_ids, block.token_offsets, tokens);
  append_padded(file, kSegmentIds, block.segment_ids, block.token_offsets, tokens);
  append_padded(file, kMaskedPositions, block.masked_positions, block.masked_offsets, masked);
  append_padded(file, kMaskedIds, block.masked_ids, block.masked_offsets, masked);
  file.append(kNextSentenceLabels, block.size(), block.next_sentence_labels);
  append_padded(file, kInputMask, ones, block.token_offsets, tokens);
}

void write_packed(const SampleSet& block, const std::vector<int64_t>& pack_offsets,
                  Hdf5Output& file) {
  std::vector<int16_t> seq_tokens, seq_masked, positions;
  std::vector<int64_t> first_tokens, first_masked;  // by pack
  for (size_t pack = 0; pack + 1 < pack_offsets.size(); ++pack) {
    const int64_t first = pack_offsets[pack];
    first_tokens.push_back(block.token_offsets[static_cast<size_t>(first)]);
    first_masked.push_back(block.masked_offsets[static_cast<size_t>(first)]);
    for (int64_t seq = first; seq < pack_offsets[pack + 1]; ++seq) {
      const SampleView sample = block[seq];
      const int64_t before = block.token_offsets[static_cast<size_t>(seq)] - first_tokens.back();
      seq_tokens.push_back(static_cast<int16_t>(sample.token_ids.size()));
      seq_masked.push_back(static_cast<int16_t>(sample.masked_ids.size()));
      for (const int16_t position : sample.masked_positions) {
        positions.push_back(static_cast<int16_t>(before + position));
      }
    }
  }
  first_tokens.push_back(std::ssize(block.token_ids));
  first_masked.push_back(std::ssize(block.masked_ids));
  file.append_lists(kInputIds, block.token_ids, first_tokens);
  file.append_lists(kSegmentIds, block.segment_ids, first_tokens);
  file.append_lists(kPackedTokens, seq_tokens, pack_offsets);
  file.append_lists(kMaskedPositions, positions, first_masked);
  file.append_lists(kMaskedIds, block.masked_ids, first_masked);
  file.append_lists(kPackedMasked, seq_masked, pack_offsets);
  file.append_lists(kNextSentenceLabels, block.next_sentence_labels, pack_offsets);
}

}  // namespace

ShardWriter::ShardWriter(const std::string& path, ShardLayout layout, const SampleLimits& limits,
                         int64_t max_seqs_per_pack)
    : layout_(layout),
      limits_(limits),
      max_seqs_per_pack_(max_seqs_per_pack),
      path_(path),
      target_(path),
      file_(path) {
  BERTHA_CHECK(max_seqs_per_pack >= 1, "max_seqs_per_pack ", max_seqs_per_pack);
  for (const DatasetFormat& format : datasets_of(layout)) {
    const bool padded = format.width != RowWidth::kOne;
    const int64_t width =
        format.width == RowWidth::kTokens ? limits.max_seq_tokens : limits.max_masked_per_seq;
    file_.create(format.name, written_element(format, limits.vocab_size), format.rows,
                 padded ? width : 0, padded ? kPaddedRowsPerChunk : kListRowsPerChunk);
  }
}

void ShardWriter::append(const SampleView& sample) {
  check_sample(sample, num_written_ + block_.size(), limits_, [&](const Violation& found) {
    fail(ExitCode::kData, path_, ": refusing to write row ", found.row, ", dataset ", found.dataset,
         ": ", found.what);
  });
  const int64_t tokens = std::ssize(sample.token_ids);
  if (layout_ == ShardLayout::kPacked) {
    const bool is_full = block_.size() - pack_offsets_.back() == max_seqs_per_pack_;
    if (is_full || open_tokens_ + tokens > limits_.max_seq_tokens) end_pack();
  } else if (block_.size() == kRowsPerBlock) {
    flush();
  }
  block_.append(sample);
  open_tokens_ += tokens;
}

void ShardWriter::end_pack() {
  if (open_tokens_ == 0) return;
  pack_offsets_.push_back(block_.size());
  open_tokens_ = 0;
  if (std::ssize(pack_offsets_) > kRowsPerBlock) flush();
}

void ShardWriter::finish() {
  end_pack();
  flush();
  target_.write(file_.close());
  target_.commit();
}

void ShardWriter::flush() {
  switch (layout_) {
    case ShardLayout::kVariableLength:
      write_variable_length(block_, file_);
      break;
    case ShardLayout::kFixedLength:
      write_fixed_length(block_, limits_, file_);
      break;
    case ShardLayout::kPacked:
      write_packed(block_, pack_offsets_, file_);
      break;
  }
  num_written_ += block_.size();
  block_ = SampleSet();
  pack_offsets_ = {0};
}

}  // namespace bertha
