#include "data/format/packed_writer.h"

#include <span>

#include "data/format/dataset_formats.h"
#include "data/format/sample_check.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// One value per sequence, given as one list per pack.
template <class T>
void append_lists(Hdf5Output& file, const char* dataset, const std::vector<T>& values,
                  const std::vector<int64_t>& offsets) {
  std::vector<std::span<const T>> rows;
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    rows.push_back(std::span(values).subspan(static_cast<size_t>(offsets[row]),
                                             static_cast<size_t>(offsets[row + 1] - offsets[row])));
  }
  file.append_ragged(dataset, rows);
}

}  // namespace

PackedWriter::PackedWriter(const std::string& path, const SampleLimits& limits,
                           int64_t max_seqs_per_pack)
    : limits_(limits),
      max_seqs_per_pack_(max_seqs_per_pack),
      path_(path),
      target_(path),
      file_(path) {
  BERTHA_CHECK(max_seqs_per_pack >= 1, "max_seqs_per_pack ", max_seqs_per_pack);
  for (const DatasetFormat& format : kPackedDatasets) {
    file_.create(format.name, format.element, format.rows, 0, kListRowsPerChunk);
  }
}

void PackedWriter::append(const SampleView& sample) {
  refuse_wrong_sample(sample, num_written_ + block_.size(), limits_, path_);
  const int64_t tokens = std::ssize(sample.token_ids);
  if (block_.size() - pack_offsets_.back() == max_seqs_per_pack_ ||
      open_tokens_ + tokens > limits_.max_seq_tokens) {
    end_pack();
  }
  block_.append(sample);
  open_tokens_ += tokens;
}

void PackedWriter::end_pack() {
  if (open_tokens_ == 0) return;
  pack_offsets_.push_back(block_.size());
  open_tokens_ = 0;
  if (std::ssize(pack_offsets_) > kRowsPerBlock) flush();
}

void PackedWriter::finish() {
  end_pack();
  flush();
  target_.write(file_.close());
  target_.commit();
}

void PackedWriter::flush() {
  using namespace dataset_names;
  std::vector<int16_t> seq_tokens, seq_masked, positions;
  std::vector<int64_t> first_tokens, first_masked;  // of the packs
  for (size_t pack = 0; pack + 1 < pack_offsets_.size(); ++pack) {
    const int64_t first = pack_offsets_[pack];
    first_tokens.push_back(block_.token_offsets[static_cast<size_t>(first)]);
    first_masked.push_back(block_.masked_offsets[static_cast<size_t>(first)]);
    for (int64_t seq = first; seq < pack_offsets_[pack + 1]; ++seq) {
      const SampleView sample = block_[seq];
      const int64_t before = block_.token_offsets[static_cast<size_t>(seq)] - first_tokens.back();
      seq_tokens.push_back(static_cast<int16_t>(sample.token_ids.size()));
      seq_masked.push_back(static_cast<int16_t>(sample.masked_ids.size()));
      for (const int16_t position : sample.masked_positions) {
        positions.push_back(static_cast<int16_t>(before + position));
      }
    }
  }
  first_tokens.push_back(std::ssize(block_.token_ids));
  first_masked.push_back(std::ssize(block_.masked_ids));
  append_lists(file_, kInputIds, block_.token_ids, first_tokens);
  append_lists(file_, kSegmentIds, block_.segment_ids, first_tokens);
  append_lists(file_, kPackedTokens, seq_tokens, pack_offsets_);
  append_lists(file_, kMaskedPositions, positions, first_masked);
  append_lists(file_, kMaskedIds, block_.masked_ids, first_masked);
  append_lists(file_, kPackedMasked, seq_masked, pack_offsets_);
  append_lists(file_, kNextSentenceLabels, block_.next_sentence_labels, pack_offsets_);
  num_written_ += block_.size();
  block_ = SampleSet();
  pack_offsets_ = {0};
}

}  // namespace bertha
