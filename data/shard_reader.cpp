#include "data/shard_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/format.h"
#include "data/global_heap.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

const char* type_wanted(const DatasetFormat& format) {
  const bool ragged = format.rows == Hdf5Rows::kRagged;
  if (format.element == Hdf5Element::kI8) return ragged ? "variable-length int8" : "int8";
  return ragged ? "variable-length int16" : "int16";
}

/// Extents of a shard: rows, and columns in the fixed-length layout.
struct Extents {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t masked = 0;
};

/// The rows of one dataset after its type and rank have been compared with the format.
Hdf5Dataset expect_dataset(const Hdf5Input& file, const DatasetFormat& want) {
  if (!file.has(want.name)) {
    fail(ExitCode::kData, file.path(), ": no dataset ", want.name,
         "; want a shard in one of the layouts of data/FORMAT.md");
  }
  Hdf5Dataset found = file.describe(want.name);
  if (found.element != want.element || found.rows != want.rows) {
    fail(ExitCode::kData, file.path(), ": dataset ", want.name, " holds ", found.type_text,
         ", want ", type_wanted(want));
  }
  const size_t rank = want.width == RowWidth::kOne ? 1 : 2;
  if (found.extents.size() != rank) {
    fail(ExitCode::kData, file.path(), ": dataset ", want.name, " has rank ", found.extents.size(),
         ", want ", rank);
  }
  return found;
}

Extents expect_datasets(const Hdf5Input& file, std::span<const DatasetFormat> formats) {
  Extents extents;
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

Extents expect_layout(const Hdf5Input& file, ShardLayout layout) {
  switch (layout) {
    case ShardLayout::kFixedLength:
      return expect_datasets(file, kFixedLengthDatasets);
    case ShardLayout::kPacked:
      return expect_datasets(file, kPackedDatasets);
    case ShardLayout::kVariableLength:
      break;
  }
  return expect_datasets(file, kVariableLengthDatasets);
}

/// Makes `rows` as long as `offsets` say, row by row, reporting each row that is not.
template <class T>
void match_lengths(const char* dataset, const char* other, RaggedRows<T>& rows,
                   const std::vector<int64_t>& offsets, const ViolationReport& report) {
  if (rows.offsets == offsets) return;
  std::vector<T> values(static_cast<size_t>(offsets.back()));
  for (int64_t row = 0; row < rows.size(); ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t want = offsets[i + 1] - offsets[i];
    if (rows.length(row) != want) {
      report({.row = row,
              .dataset = dataset,
              .what = concat(rows.length(row), " elements, but ", other, " has ", want,
                             "; want as many")});
    }
    std::copy_n(rows.values.begin() + rows.offsets[i], std::min(rows.length(row), want),
                values.begin() + offsets[i]);
  }
  rows.values = std::move(values);
  rows.offsets = offsets;
}

SampleSet read_variable_length(const Hdf5Input& file, const Extents& extents,
                               const ViolationReport& report) {
  using namespace dataset_names;
  GlobalHeapReader heap(file.path());
  auto tokens = heap.read_rows<int16_t>(kInputIds, file.row_blocks(kInputIds));
  auto segments = heap.read_rows<int8_t>(kSegmentIds, file.row_blocks(kSegmentIds));
  auto positions = heap.read_rows<int16_t>(kMaskedPositions, file.row_blocks(kMaskedPositions));
  auto labels = heap.read_rows<int16_t>(kMaskedIds, file.row_blocks(kMaskedIds));
  match_lengths(kSegmentIds, kInputIds, segments, tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, labels, positions.offsets, report);
  SampleSet samples;
  samples.token_offsets = std::move(tokens.offsets);
  samples.token_ids = std::move(tokens.values);
  samples.segment_ids = std::move(segments.values);
  samples.masked_offsets = std::move(positions.offsets);
  samples.masked_positions = std::move(positions.values);
  samples.masked_ids = std::move(labels.values);
  samples.next_sentence_labels.resize(static_cast<size_t>(extents.rows));
  file.read(kNextSentenceLabels, 0, extents.rows, samples.next_sentence_labels);
  return samples;
}

/// The datasets of packed rows as they lie in the file.
struct PackedRows {
  RaggedRows<int16_t> tokens;
  RaggedRows<int8_t> segments;
  RaggedRows<int16_t> seq_tokens;
  RaggedRows<int16_t> positions;  // in the pack
  RaggedRows<int16_t> labels;
  RaggedRows<int16_t> seq_masked;
  RaggedRows<int8_t> next;
};

/// What does not add up in a pack; empty when all does.
Violation wrong_lengths(const PackedRows& rows, int64_t row, int64_t max_seq_tokens) {
  using namespace dataset_names;
  const auto wrong = [&](const char* dataset, const auto&... words) {
    return Violation{.row = row, .dataset = dataset, .what = concat(words...)};
  };
  const auto seq_tokens = rows.seq_tokens[row];
  const auto seq_masked = rows.seq_masked[row];
  const int64_t tokens = rows.tokens.length(row);
  if (tokens < 1 || tokens > max_seq_tokens) {
    return wrong(kInputIds, tokens, " tokens, want 1 to ", max_seq_tokens);
  }
  const auto low = std::find_if(seq_tokens.begin(), seq_tokens.end(), [](int t) { return t < 1; });
  if (low != seq_tokens.end()) {
    return wrong(kPackedTokens, "element ", low - seq_tokens.begin(), " is ", *low,
                 ", want 1 or more");
  }
  const int64_t sum = std::accumulate(seq_tokens.begin(), seq_tokens.end(), int64_t{0});
  if (sum != tokens) {
    return wrong(kPackedTokens, "adds up to ", sum, " tokens, but ", kInputIds, " has ", tokens);
  }
  if (seq_masked.size() != seq_tokens.size()) {
    return wrong(kPackedMasked, seq_masked.size(), " elements, but ", kPackedTokens, " has ",
                 seq_tokens.size(), "; want as many");
  }
  const auto negative =
      std::find_if(seq_masked.begin(), seq_masked.end(), [](int m) { return m < 0; });
  if (negative != seq_masked.end()) {
    return wrong(kPackedMasked, "element ", negative - seq_masked.begin(), " is ", *negative,
                 ", want 0 or more");
  }
  const int64_t masked = std::accumulate(seq_masked.begin(), seq_masked.end(), int64_t{0});
  if (masked != rows.positions.length(row)) {
    return wrong(kPackedMasked, "adds up to ", masked, ", but ", kMaskedPositions, " has ",
                 rows.positions.length(row), " elements");
  }
  if (rows.next.length(row) != std::ssize(seq_tokens)) {
    return wrong(kNextSentenceLabels, rows.next.length(row), " elements, but ", kPackedTokens,
                 " has ", seq_tokens.size(), "; want as many");
  }
  return {};
}

/// The sequences of a pack whose lengths add up. Their positions count from their own first token.
void append_pack(const PackedRows& rows, int64_t row, SampleSet& samples) {
  const auto seq_tokens = rows.seq_tokens[row];
  std::vector<int16_t> positions;
  size_t token = 0;
  size_t masked = 0;
  for (size_t seq = 0; seq < seq_tokens.size(); ++seq) {
    const auto num_tokens = static_cast<size_t>(seq_tokens[seq]);
    const auto num_masked = static_cast<size_t>(rows.seq_masked[row][seq]);
    positions.clear();
    for (const int16_t position : rows.positions[row].subspan(masked, num_masked)) {
      // Saturates: a wrong one must not become a right one.
      positions.push_back(static_cast<int16_t>(
          std::max(static_cast<int>(position) - static_cast<int>(token), INT16_MIN)));
    }
    samples.append({.token_ids = rows.tokens[row].subspan(token, num_tokens),
                    .segment_ids = rows.segments[row].subspan(token, num_tokens),
                    .masked_positions = positions,
                    .masked_ids = rows.labels[row].subspan(masked, num_masked),
                    .next_sentence_label = rows.next[row][seq]});
    token += num_tokens;
    masked += num_masked;
  }
}

ShardContents read_packed(const Hdf5Input& file, const Extents& extents, int64_t max_seq_tokens,
                          const ViolationReport& report) {
  using namespace dataset_names;
  GlobalHeapReader heap(file.path());
  PackedRows rows{
      .tokens = heap.read_rows<int16_t>(kInputIds, file.row_blocks(kInputIds)),
      .segments = heap.read_rows<int8_t>(kSegmentIds, file.row_blocks(kSegmentIds)),
      .seq_tokens = heap.read_rows<int16_t>(kPackedTokens, file.row_blocks(kPackedTokens)),
      .positions = heap.read_rows<int16_t>(kMaskedPositions, file.row_blocks(kMaskedPositions)),
      .labels = heap.read_rows<int16_t>(kMaskedIds, file.row_blocks(kMaskedIds)),
      .seq_masked = heap.read_rows<int16_t>(kPackedMasked, file.row_blocks(kPackedMasked)),
      .next = heap.read_rows<int8_t>(kNextSentenceLabels, file.row_blocks(kNextSentenceLabels))};
  match_lengths(kSegmentIds, kInputIds, rows.segments, rows.tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, rows.labels, rows.positions.offsets, report);
  ShardContents contents;
  contents.samples.token_ids.reserve(rows.tokens.values.size());
  contents.samples.segment_ids.reserve(rows.tokens.values.size());
  for (int64_t row = 0; row < extents.rows; ++row) {
    contents.row_offsets.push_back(contents.samples.size());
    if (const Violation wrong = wrong_lengths(rows, row, max_seq_tokens); !wrong.what.empty()) {
      report(wrong);
      continue;
    }
    append_pack(rows, row, contents.samples);
  }
  contents.row_offsets.push_back(contents.samples.size());
  return contents;
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

void read_block(const Hdf5Input& file, const Extents& extents, int64_t first, int64_t rows,
                FixedBlock& block) {
  using namespace dataset_names;
  const auto num_tokens = static_cast<size_t>(rows * extents.tokens);
  const auto num_masked = static_cast<size_t>(rows * extents.masked);
  block.ids.resize(num_tokens);
  block.mask.resize(num_tokens);
  block.segments.resize(num_tokens);
  block.positions.resize(num_masked);
  block.labels.resize(num_masked);
  block.next.resize(static_cast<size_t>(rows));
  file.read(kInputIds, first, rows, block.ids);
  file.read(kInputMask, first, rows, block.mask);
  file.read(kSegmentIds, first, rows, block.segments);
  file.read(kMaskedPositions, first, rows, block.positions);
  file.read(kMaskedIds, first, rows, block.labels);
  file.read(kNextSentenceLabels, first, rows, block.next);
}

/// The number of leading elements that are not zero; the rest must be zero.
template <class T>
size_t live_prefix(std::span<const T> values, const char* dataset, int64_t row,
                   const ViolationReport& report) {
  const auto zero = std::find(values.begin(), values.end(), T{0});
  const auto stray = std::find_if(zero, values.end(), [](T value) { return value != 0; });
  if (stray != values.end()) {
    report({.row = row,
            .dataset = dataset,
            .what = concat("element ", stray - values.begin(), " is ", static_cast<int>(*stray),
                           " after a zero, want zeros only at the end")});
  }
  return static_cast<size_t>(zero - values.begin());
}

void append_block(const FixedBlock& block, const Extents& extents, int64_t first, int64_t rows,
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
    if (const auto bad = std::find_if(live.begin(), live.end(), [](int8_t m) { return m != 1; });
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

SampleSet read_fixed_length(const Hdf5Input& file, const Extents& extents,
                            const ViolationReport& report) {
  SampleSet samples;
  FixedBlock block;
  for (int64_t first = 0; first < extents.rows; first += kRowsPerBlock) {
    const int64_t rows = std::min(kRowsPerBlock, extents.rows - first);
    read_block(file, extents, first, rows, block);
    append_block(block, extents, first, rows, report, samples);
  }
  return samples;
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
  return std::upper_bound(row_offsets.begin(), row_offsets.end(), sample) - row_offsets.begin() - 1;
}

ShardInfo inspect_shard(const std::string& path) {
  const Hdf5Input file(path);
  const ShardLayout layout = layout_of(file);
  const int64_t rows = expect_layout(file, layout).rows;
  if (layout != ShardLayout::kPacked) {
    return {.layout = layout, .num_rows = rows, .num_samples = rows};
  }
  const char* labels = dataset_names::kNextSentenceLabels;  // one for each sequence
  const std::vector<int64_t> seqs =
      GlobalHeapReader(path).read_lengths(labels, file.row_blocks(labels));
  return {.layout = layout,
          .num_rows = rows,
          .num_samples = std::accumulate(seqs.begin(), seqs.end(), int64_t{0})};
}

ShardContents read_shard_reporting(const std::string& path, int64_t first_sample_id,
                                   const SampleLimits& limits, const ViolationReport& report) {
  const Hdf5Input file(path);
  const ShardLayout layout = layout_of(file);
  const Extents extents = expect_layout(file, layout);
  ShardContents contents;
  if (layout == ShardLayout::kPacked) {
    contents = read_packed(file, extents, limits.max_seq_tokens, report);
  } else if (layout == ShardLayout::kFixedLength) {
    contents.samples = read_fixed_length(file, extents, report);
  } else {
    contents.samples = read_variable_length(file, extents, report);
    contents.samples.ids.resize(static_cast<size_t>(extents.rows));
  }
  std::iota(contents.samples.ids.begin(), contents.samples.ids.end(), first_sample_id);
  for (int64_t sample = 0; sample < contents.samples.size(); ++sample) {
    check_in_place(contents, sample, limits, report);
  }
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
