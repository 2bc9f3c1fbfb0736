#include "data/format/shard_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/format/dataset_formats.h"
#include "data/format/packed_rows.h"
#include "data/format/ragged_rows.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

const char* type_wanted(const DatasetFormat& format) {
  const bool ragged = format.rows == Hdf5Rows::kRagged;
  if (format.element == Hdf5Element::kI8) return ragged ? "variable-length int8" : "int8";
  return ragged ? "variable-length int16" : "int16";
}

/// The rows of one dataset after its type and rank have been compared with the format.
Hdf5Dataset expect_dataset(const Hdf5Input& file, const DatasetFormat& want) {
  if (!file.has(want.name)) {
    fail(ExitCode::kData, file.path(), ": no dataset ", want.name,
         "; want a shard in one of the layouts of data/FORMAT.md");
  }
  Hdf5Dataset found = file.describe(want.name);
  if (found.element != want.element || found.rows != want.rows) {
    fail(ExitCode::kData, file.path(), ": dataset ", want.name, " holds ", found.type_text,
         ", want ", type_wanted(want),
         found.rows != want.rows ? "; make the shard again"
                                 : concat("; write it again, with h5py file[\"", want.name,
                                          "\"][:].astype(\"", type_wanted(want), "\")"));
  }
  const size_t rank = want.width == RowWidth::kOne ? 1 : 2;
  if (found.extents.size() != rank) {
    fail(ExitCode::kData, file.path(), ": dataset ", want.name, " has rank ", found.extents.size(),
         ", want ", rank);
  }
  return found;
}

ShardExtents expect_datasets(const Hdf5Input& file, std::span<const DatasetFormat> formats) {
  ShardExtents extents;
  for (const DatasetFormat& format : formats) {
    const Hdf5Dataset found = expect_dataset(file, format);
    const bool first = &format == formats.data();
    if (first) extents.rows = found.extents[0];
    if (found.extents[0] != extents.rows) {
      fail(ExitCode::kData, file.path(), ": dataset ", format.name, " has ", found.extents[0],
           " rows, but ", formats[0].name, " has ", extents.rows, "; want as many");
    }
    if (format.width == RowWidth::kOne) continue;
    int64_t& columns = format.width == RowWidth::kTokens ? extents.tokens : extents.masked;
    if (columns == 0) columns = found.extents[1];
    constexpr int64_t kMostColumns = 32768;  // positions are int16
    if (found.extents[1] != columns || columns < 1 || columns > kMostColumns) {
      fail(ExitCode::kData, file.path(), ": dataset ", format.name, " has ", found.extents[1],
           " columns, want ", std::clamp<int64_t>(columns, 1, kMostColumns));
    }
  }
  return extents;
}

ShardLayout layout_of(const Hdf5Input& file) {
  using namespace dataset_names;
  if (file.has(kInputMask)) return ShardLayout::kFixedLength;
  const bool packed = file.has(kPackedTokens) || file.has(kPackedMasked);
  return packed ? ShardLayout::kPacked : ShardLayout::kVariableLength;
}

/// A block of rows of the fixed-length layout as it lies in the file.
struct FixedBlock {
  std::vector<int16_t> ids;        // [rows * tokens]
  std::vector<int8_t> mask;        // [rows * tokens]
  std::vector<int8_t> segments;    // [rows * tokens]
  std::vector<int16_t> positions;  // [rows * masked]
  std::vector<int16_t> labels;     // [rows * masked]
  std::vector<int8_t> next;        // [rows]
};

void read_block(const Hdf5Input& file, const ShardExtents& extents, int64_t first, int64_t rows,
                FixedBlock& block) {
  using namespace dataset_names;
  const auto read = [&](const char* dataset, int64_t columns, auto& values) {
    values.resize(static_cast<size_t>(rows * columns));
    file.read(dataset, first, rows, values);
  };
  read(kInputIds, extents.tokens, block.ids);
  read(kInputMask, extents.tokens, block.mask);
  read(kSegmentIds, extents.tokens, block.segments);
  read(kMaskedPositions, extents.masked, block.positions);
  read(kMaskedIds, extents.masked, block.labels);
  read(kNextSentenceLabels, 1, block.next);
}

/// The number of leading elements that are not zero; the rest must be zero.
template <class T>
size_t live_prefix(std::span<const T> values, const char* dataset, int64_t row,
                   const ViolationReport& report) {
  const auto zero = std::ranges::find(values, T{0});
  const auto stray = std::find_if(zero, values.end(), [](T value) { return value != 0; });
  if (stray != values.end()) {
    report({.row = row,
            .dataset = dataset,
            .what = concat("element ", stray - values.begin(), " is ", static_cast<int>(*stray),
                           " after a zero, want zeros only at the end")});
  }
  return static_cast<size_t>(zero - values.begin());
}

void append_block(const FixedBlock& block, const ShardExtents& extents, int64_t first, int64_t rows,
                  const ViolationReport& report, SampleSet& samples) {
  const auto width = static_cast<size_t>(extents.tokens);
  const auto most_masked = static_cast<size_t>(extents.masked);
  for (int64_t i = 0; i < rows; ++i) {
    const auto r = static_cast<size_t>(i);
    const auto mask = std::span(block.mask).subspan(r * width, width);
    const auto positions = std::span(block.positions).subspan(r * most_masked, most_masked);
    const size_t num_tokens =
        live_prefix<int8_t>(mask, dataset_names::kInputMask, first + i, report);
    const auto live = mask.first(num_tokens);
    if (const auto bad = std::ranges::find_if(live, [](int8_t m) { return m != 1; });
        bad != live.end()) {
      report({.row = first + i,
              .dataset = dataset_names::kInputMask,
              .what = concat("element ", bad - live.begin(), " is ", static_cast<int>(*bad),
                             ", want 0 or 1")});
    }
    const size_t num_masked =
        live_prefix<int16_t>(positions, dataset_names::kMaskedPositions, first + i, report);
    samples.append({.token_ids = std::span(block.ids).subspan(r * width, num_tokens),
                    .segment_ids = std::span(block.segments).subspan(r * width, num_tokens),
                    .masked_positions = positions.first(num_masked),
                    .masked_ids = std::span(block.labels).subspan(r * most_masked, num_masked),
                    .next_sentence_label = block.next[r]});
  }
}

/// Reports what is wrong in a sample, with the pack that it is in where there is one.
void check_in_place(const ShardContents& contents, int64_t sample, const SampleLimits& limits,
                    const ViolationReport& report) {
  const int64_t row = contents.row_of(sample);
  const auto at = static_cast<size_t>(row);
  const bool alone =
      contents.row_offsets.empty() || contents.row_offsets[at + 1] - contents.row_offsets[at] == 1;
  if (alone) return check_sample(contents.samples[sample], row, limits, report);
  check_sample(contents.samples[sample], row, limits, [&](const Violation& found) {
    report({.row = row,
            .dataset = found.dataset,
            .what = concat("in sequence ", sample - contents.row_offsets[at], " of the pack, ",
                           found.what)});
  });
}

}  // namespace

int64_t ShardContents::row_of(int64_t sample) const {
  if (row_offsets.empty()) return sample;
  return std::ranges::upper_bound(row_offsets, sample) - row_offsets.begin() - 1;
}

ShardInfo inspect_shard(const std::string& path) {
  ShardRows rows(path);
  const int64_t num_samples =
      rows.layout() == ShardLayout::kPacked ? rows.packed_row_offsets().back() : rows.num_rows();
  return {.layout = rows.layout(), .num_rows = rows.num_rows(), .num_samples = num_samples};
}

ShardRows::ShardRows(const std::string& path) : file_(path), layout_(layout_of(file_)) {
  extents_ = expect_datasets(file_, datasets_of(layout_));
  if (layout_ != ShardLayout::kFixedLength) {
    heap_ = std::make_unique<GlobalHeapReader>(path, file_.list_base_bytes());
  }
}

const std::vector<std::byte>& ShardRows::descriptors_of(const char* dataset) {
  const auto known = descriptors_.find(dataset);
  if (known != descriptors_.end()) return known->second;
  return descriptors_[dataset] = file_.read_descriptors(dataset, extents_.rows);
}

template <class T>
RaggedRows<T> ShardRows::read_lists(const char* dataset, int64_t first_row, int64_t num_rows) {
  return heap_->read_rows<T>(dataset, descriptors_of(dataset), first_row, num_rows);
}

std::vector<int64_t> ShardRows::packed_row_offsets() {
  const char* labels = dataset_names::kNextSentenceLabels;  // one for each sequence
  std::vector<int64_t> offsets{0};
  for (const int64_t seqs : heap_->read_lengths(labels, descriptors_of(labels))) {
    offsets.push_back(offsets.back() + seqs);
  }
  return offsets;
}

std::vector<int64_t> ShardRows::token_counts() {
  using namespace dataset_names;
  if (layout_ == ShardLayout::kVariableLength) {
    return heap_->read_lengths(kInputIds, descriptors_of(kInputIds));
  }
  if (layout_ == ShardLayout::kPacked) {
    const auto counts = read_lists<int16_t>(kPackedTokens, 0, extents_.rows).values;
    return {counts.begin(), counts.end()};
  }
  std::vector<int64_t> counts;
  std::vector<int8_t> mask;
  for (int64_t first = 0; first < extents_.rows; first += kRowsPerBlock) {
    const int64_t rows = std::min(kRowsPerBlock, extents_.rows - first);
    mask.resize(static_cast<size_t>(rows * extents_.tokens));
    file_.read(kInputMask, first, rows, mask);
    for (int64_t i = 0; i < rows; ++i) {
      const auto begin = mask.begin() + i * extents_.tokens;
      counts.push_back(std::find(begin, begin + extents_.tokens, int8_t{0}) - begin);
    }
  }
  return counts;
}

ShardContents ShardRows::read(int64_t first_row, int64_t num_rows, const SampleLimits& limits,
                              const ViolationReport& report) {
  const ViolationReport report_row = [&](const Violation& found) {
    report({.row = first_row + found.row, .dataset = found.dataset, .what = found.what});
  };
  ShardContents contents;
  switch (layout_) {
    case ShardLayout::kFixedLength:
      read_fixed_length(first_row, num_rows, report_row, contents);
      break;
    case ShardLayout::kVariableLength:
      read_variable_length(first_row, num_rows, report_row, contents);
      break;
    case ShardLayout::kPacked:
      read_packed(first_row, num_rows, limits.max_seq_tokens, report_row, contents);
      break;
  }
  for (int64_t sample = 0; sample < contents.samples.size(); ++sample) {
    check_in_place(contents, sample, limits, report_row);
  }
  return contents;
}

void ShardRows::read_variable_length(int64_t first_row, int64_t num_rows,
                                     const ViolationReport& report, ShardContents& contents) {
  using namespace dataset_names;
  auto tokens = read_lists<int16_t>(kInputIds, first_row, num_rows);
  auto segments = read_lists<int8_t>(kSegmentIds, first_row, num_rows);
  auto positions = read_lists<int16_t>(kMaskedPositions, first_row, num_rows);
  auto labels = read_lists<int16_t>(kMaskedIds, first_row, num_rows);
  match_lengths(kSegmentIds, kInputIds, segments, tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, labels, positions.offsets, report);
  SampleSet& samples = contents.samples;
  samples.ids.resize(static_cast<size_t>(num_rows));
  samples.token_offsets = std::move(tokens.offsets);
  samples.token_ids = std::move(tokens.values);
  samples.segment_ids = std::move(segments.values);
  samples.masked_offsets = std::move(positions.offsets);
  samples.masked_positions = std::move(positions.values);
  samples.masked_ids = std::move(labels.values);
  samples.next_sentence_labels.resize(static_cast<size_t>(num_rows));
  file_.read(kNextSentenceLabels, first_row, num_rows, samples.next_sentence_labels);
}

void ShardRows::read_packed(int64_t first_row, int64_t num_rows, int64_t max_seq_tokens,
                            const ViolationReport& report, ShardContents& contents) {
  using namespace dataset_names;
  contents.row_offsets =
      unpack_rows({.tokens = read_lists<int16_t>(kInputIds, first_row, num_rows),
                   .segments = read_lists<int8_t>(kSegmentIds, first_row, num_rows),
                   .seq_tokens = read_lists<int16_t>(kPackedTokens, first_row, num_rows),
                   .positions = read_lists<int16_t>(kMaskedPositions, first_row, num_rows),
                   .labels = read_lists<int16_t>(kMaskedIds, first_row, num_rows),
                   .seq_masked = read_lists<int16_t>(kPackedMasked, first_row, num_rows),
                   .next = read_lists<int8_t>(kNextSentenceLabels, first_row, num_rows)},
                  max_seq_tokens, report, contents.samples);
}

void ShardRows::read_fixed_length(int64_t first_row, int64_t num_rows,
                                  const ViolationReport& report, ShardContents& contents) {
  FixedBlock block;
  for (int64_t done = 0; done < num_rows; done += kRowsPerBlock) {
    const int64_t rows = std::min(kRowsPerBlock, num_rows - done);
    read_block(file_, extents_, first_row + done, rows, block);
    append_block(block, extents_, done, rows, report, contents.samples);
  }
}

ShardContents read_shard_reporting(const std::string& path, int64_t first_sample_id,
                                   const SampleLimits& limits, const ViolationReport& report) {
  ShardRows rows(path);
  ShardContents contents = rows.read(0, rows.num_rows(), limits, report);
  std::iota(contents.samples.ids.begin(), contents.samples.ids.end(), first_sample_id);
  return contents;
}

SampleSet read_shard(const std::string& path, int64_t first_sample_id, const SampleLimits& limits) {
  return read_shard_reporting(path, first_sample_id, limits, stop_at_violation(path)).samples;
}

ViolationReport stop_at_violation(const std::string& path) {
  return [path](const Violation& found) {
    fail(ExitCode::kData, path, ": dataset ", found.dataset, ", row ", found.row, ": ", found.what);
  };
}

}  // namespace bertha
