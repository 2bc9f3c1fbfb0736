#include <algorithm>
#include <utility>

#include "data/files/new_file.h"
#include "data/format/dataset_formats.h"
#include "data/format/packed_writer.h"
#include "data/format/sample_check.h"
#include "data/format/shard_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Collects blocks of rows in memory; a derived class writes them in its layout.
class BlockWriter : public ShardWriter {
 public:
  BlockWriter(const std::string& path, const SampleLimits& limits)
      : limits_(limits), path_(path), target_(path), file_(path) {}

  void append(const SampleView& sample) override {
    refuse_wrong_sample(sample, num_written_ + block_.size(), limits_, path_);
    block_.append(sample);
    if (block_.size() == kRowsPerBlock) flush();
  }

  void finish() override {
    flush();
    target_.write(file_.close());
    target_.commit();
  }

 protected:
  virtual void write(const SampleSet& block) = 0;
  Hdf5Output& file() { return file_; }
  const SampleLimits& limits() const { return limits_; }

  int64_t columns(RowWidth width) const {
    if (width == RowWidth::kOne) return 0;
    return width == RowWidth::kTokens ? limits_.max_seq_tokens : limits_.max_masked_per_seq;
  }

  void create(std::span<const DatasetFormat> formats) {
    for (const DatasetFormat& format : formats) {
      const bool padded = format.width != RowWidth::kOne;
      file_.create(format.name, format.element, format.rows, columns(format.width),
                   padded ? kPaddedRowsPerChunk : kListRowsPerChunk);
    }
  }

 private:
  void flush() {
    write(block_);
    num_written_ += block_.size();
    block_ = SampleSet();
  }

  SampleLimits limits_;
  std::string path_;
  NewFile target_;  // made first: an unwritable folder is known before the work
  Hdf5Output file_;
  SampleSet block_;
  int64_t num_written_ = 0;
};

class VariableLengthWriter final : public BlockWriter {
 public:
  VariableLengthWriter(const std::string& path, const SampleLimits& limits)
      : BlockWriter(path, limits) {
    create(kVariableLengthDatasets);
  }

 private:
  void write(const SampleSet& block) override {
    using namespace dataset_names;
    append<int16_t>(kInputIds, block, &SampleView::token_ids);
    append<int8_t>(kSegmentIds, block, &SampleView::segment_ids);
    append<int16_t>(kMaskedPositions, block, &SampleView::masked_positions);
    append<int16_t>(kMaskedIds, block, &SampleView::masked_ids);
    file().append(kNextSentenceLabels, block.size(), block.next_sentence_labels);
  }

  template <class T>
  void append(const char* dataset, const SampleSet& block, std::span<const T> SampleView::*field) {
    std::vector<std::span<const T>> rows;
    for (int64_t i = 0; i < block.size(); ++i) rows.push_back(block[i].*field);
    file().append_ragged(dataset, rows);
  }

  using BlockWriter::append;
};

class FixedLengthWriter final : public BlockWriter {
 public:
  FixedLengthWriter(const std::string& path, const SampleLimits& limits)
      : BlockWriter(path, limits) {
    create(kFixedLengthDatasets);
  }

 private:
  void write(const SampleSet& block) override {
    using namespace dataset_names;
    const auto tokens = limits().max_seq_tokens;
    const auto masked = limits().max_masked_per_seq;
    append<int16_t>(kInputIds, block, tokens, &SampleView::token_ids);
    append<int8_t>(kSegmentIds, block, tokens, &SampleView::segment_ids);
    append<int16_t>(kMaskedPositions, block, masked, &SampleView::masked_positions);
    append<int16_t>(kMaskedIds, block, masked, &SampleView::masked_ids);
    file().append(kNextSentenceLabels, block.size(), block.next_sentence_labels);
    append_mask(block, tokens);
  }

  /// One field of each row, filled with zeros to the width.
  template <class T>
  void append(const char* dataset, const SampleSet& block, int64_t width,
              std::span<const T> SampleView::*field) {
    std::vector<T> values(static_cast<size_t>(block.size() * width));
    for (int64_t i = 0; i < block.size(); ++i) {
      const std::span<const T> row = block[i].*field;
      std::copy(row.begin(), row.end(), values.begin() + i * width);
    }
    file().append(dataset, block.size(), values);
  }

  void append_mask(const SampleSet& block, int64_t width) {
    std::vector<int8_t> values(static_cast<size_t>(block.size() * width));
    for (int64_t i = 0; i < block.size(); ++i) {
      std::fill_n(values.begin() + i * width, block[i].token_ids.size(), int8_t{1});
    }
    file().append(dataset_names::kInputMask, block.size(), values);
  }

  using BlockWriter::append;
};

}  // namespace

std::unique_ptr<ShardWriter> make_shard_writer(const std::string& path, ShardLayout layout,
                                               const SampleLimits& limits) {
  if (layout == ShardLayout::kFixedLength) return std::make_unique<FixedLengthWriter>(path, limits);
  if (layout == ShardLayout::kPacked) {
    return std::make_unique<PackedWriter>(path, limits, kPublishedSeqsPerPack);
  }
  return std::make_unique<VariableLengthWriter>(path, limits);
}

}  // namespace bertha
