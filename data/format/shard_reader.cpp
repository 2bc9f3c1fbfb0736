#include "data/format/shard_reader.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

using namespace dataset_names;

ShardLayout layout_of(const Hdf5Input& file) {
  if (file.has(kInputMask)) return ShardLayout::kFixedLength;
  const bool packed = file.has(kPackedTokens) || file.has(kPackedMasked);
  return packed ? ShardLayout::kPacked : ShardLayout::kVariableLength;
}

const char* type_wanted(const DatasetFormat& format) {
  const bool ragged = format.rows == Hdf5Rows::kRagged;
  if (format.element == Hdf5Element::kI8) return ragged ? "variable-length int8" : "int8";
  return ragged ? "variable-length int16" : "int16";
}

// --- fixed length ---

/// A block of rows as stored in the file.
struct FixedBlock {
  std::vector<TokenId> ids;        // [rows * tokens]
  std::vector<int8_t> mask;        // [rows * tokens]
  std::vector<int8_t> segments;    // [rows * tokens]
  std::vector<int16_t> positions;  // [rows * masked]
  std::vector<TokenId> labels;     // [rows * masked]
  std::vector<int8_t> next;        // [rows]
};

/// Row r of the block, which is this row of those that are reported on.
void append_row(const FixedBlock& block, size_t r, const RowReport& row, SampleSet& samples) {
  const size_t width = block.mask.size() / block.next.size();
  const size_t most_masked = block.positions.size() / block.next.size();
  const auto mask = std::span(block.mask).subspan(r * width, width);
  const auto positions = std::span(block.positions).subspan(r * most_masked, most_masked);
  const auto wrong_in = [&](const char* dataset) {
    return [&row, dataset](const std::string& what) { row.wrong(dataset, what); };
  };
  const size_t num_tokens = live_prefix<int8_t>(mask, wrong_in(kInputMask));
  const auto live = mask.first(num_tokens);
  const auto bad = std::ranges::find_if(live, [](int8_t m) { return m != 1; });
  if (bad != live.end()) {
    row.wrong(kInputMask, "element ", bad - live.begin(), " is ", static_cast<int>(*bad),
              ", want 0 or 1");
  }
  const size_t num_masked = live_prefix<int16_t>(positions, wrong_in(kMaskedPositions));
  samples.append({.token_ids = std::span(block.ids).subspan(r * width, num_tokens),
                  .segment_ids = std::span(block.segments).subspan(r * width, num_tokens),
                  .masked_positions = positions.first(num_masked),
                  .masked_ids = std::span(block.labels).subspan(r * most_masked, num_masked),
                  .next_sentence_label = block.next[r]});
}

// --- lists ---

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
      RowReport{row, report}.wrong(dataset, rows.length(row), " elements, but ", other, " has ",
                                   want, "; want as many");
    }
    std::copy_n(rows.values.begin() + rows.offsets[i], std::min(rows.length(row), want),
                values.begin() + offsets[i]);
  }
  rows.values = std::move(values);
  rows.offsets = offsets;
}

/// Whether the lengths in a pack add up; reports the first that does not.
bool adds_up(const PackedRows& rows, int64_t row, int64_t max_seq_tokens,
             const ViolationReport& report) {
  const RowReport found{row, report};
  const auto seq_tokens = rows.seq_tokens[row];
  const auto seq_masked = rows.seq_masked[row];
  const int64_t tokens = rows.tokens.length(row);
  if (tokens < 1 || tokens > max_seq_tokens) {
    return found.wrong(kInputIds, tokens, " tokens, want 1 to ", max_seq_tokens,
                       " (check whether the data was prepared for longer sequences)");
  }
  const auto low = std::ranges::find_if(seq_tokens, [](int t) { return t < 1; });
  if (low != seq_tokens.end()) {
    return found.wrong(kPackedTokens, "element ", low - seq_tokens.begin(), " is ", *low,
                       ", want 1 or more");
  }
  const int64_t sum = std::accumulate(seq_tokens.begin(), seq_tokens.end(), int64_t{0});
  if (sum != tokens) {
    return found.wrong(kPackedTokens, "adds up to ", sum, " tokens, but ", kInputIds, " has ",
                       tokens);
  }
  if (seq_masked.size() != seq_tokens.size()) {
    return found.wrong(kPackedMasked, seq_masked.size(), " elements, but ", kPackedTokens, " has ",
                       seq_tokens.size(), "; want as many");
  }
  const auto negative = std::ranges::find_if(seq_masked, [](int m) { return m < 0; });
  if (negative != seq_masked.end()) {
    return found.wrong(kPackedMasked, "element ", negative - seq_masked.begin(), " is ", *negative,
                       ", want 0 or more");
  }
  const int64_t masked = std::accumulate(seq_masked.begin(), seq_masked.end(), int64_t{0});
  if (masked != rows.positions.length(row)) {
    return found.wrong(kPackedMasked, "adds up to ", masked, ", but ", kMaskedPositions, " has ",
                       rows.positions.length(row), " elements");
  }
  if (rows.next.length(row) != std::ssize(seq_tokens)) {
    return found.wrong(kNextSentenceLabels, rows.next.length(row), " elements, but ", kPackedTokens,
                       " has ", seq_tokens.size(), "; want as many");
  }
  return true;
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

/// Reports the faults of a sample, with its pack if there is one.
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

ShardRows::ShardRows(const std::string& path) : file_(path), layout_(layout_of(file_)) {
  for (const DatasetFormat& format : datasets_of(layout_)) expect_dataset(format);
}

/// Compares type, rank and extents of a dataset with the format and with the datasets before it.
void ShardRows::expect_dataset(const DatasetFormat& want) {
  const std::string& path = file_.path();
  if (!file_.has(want.name)) {
    fail(ExitCode::kData, path, ": no dataset ", want.name,
         "; want a shard in one of the layouts of data/FORMAT.md");
  }
  const Hdf5Dataset found = file_.describe(want.name);
  const bool is_wider = want.element == Hdf5Element::kI16 && found.element == Hdf5Element::kI32;
  if ((found.element != want.element && !is_wider) || found.rows != want.rows) {
    fail(ExitCode::kData, path, ": dataset ", want.name, " contains ", found.type_text, ", want ",
         type_wanted(want),
         found.rows != want.rows ? "; prepare the shard again"
                                 : concat("; write it again, with h5py file[\"", want.name,
                                          "\"][:].astype(\"", type_wanted(want), "\")"));
  }
  const size_t rank = want.width == RowWidth::kOne ? 1 : 2;
  if (found.extents.size() != rank) {
    fail(ExitCode::kData, path, ": dataset ", want.name, " has rank ", found.extents.size(),
         ", want ", rank);
  }
  if (num_rows_ < 0) num_rows_ = found.extents[0];
  if (found.extents[0] != num_rows_) {
    fail(ExitCode::kData, path, ": dataset ", want.name, " has ", found.extents[0], " rows, but ",
         datasets_of(layout_)[0].name, " has ", num_rows_, "; want as many");
  }
  if (want.width == RowWidth::kOne) return;
  int64_t& columns = want.width == RowWidth::kTokens ? row_tokens_ : row_masked_;
  if (columns == 0) columns = found.extents[1];
  constexpr int64_t kMaxColumns = 32768;  // positions are int16
  if (found.extents[1] != columns || columns < 1 || columns > kMaxColumns) {
    fail(ExitCode::kData, path, ": dataset ", want.name, " has ", found.extents[1],
         " columns, want ", std::clamp<int64_t>(columns, 1, kMaxColumns));
  }
}

ShardContents ShardRows::read(int64_t first_row, int64_t num_rows, const SampleLimits& limits,
                              const ViolationReport& report) {
  const ViolationReport report_row = [&](const Violation& found) {
    report({.row = first_row + found.row, .dataset = found.dataset, .what = found.what});
  };
  ShardContents contents;
  switch (layout_) {
    case ShardLayout::kFixedLength:
      contents.samples = read_fixed_length(first_row, num_rows, report_row);
      break;
    case ShardLayout::kVariableLength:
      contents.samples = read_variable_length(first_row, num_rows, report_row);
      break;
    case ShardLayout::kPacked:
      contents = read_packed(first_row, num_rows, limits.max_seq_tokens, report_row);
      break;
  }
  for (int64_t sample = 0; sample < contents.samples.size(); ++sample) {
    check_in_place(contents, sample, limits, report_row);
  }
  return contents;
}

SampleSet ShardRows::read_variable_length(int64_t first_row, int64_t num_rows,
                                          const ViolationReport& report) {
  auto tokens = file_.read_lists<TokenId>(kInputIds, first_row, num_rows);
  auto segments = file_.read_lists<int8_t>(kSegmentIds, first_row, num_rows);
  auto positions = file_.read_lists<int16_t>(kMaskedPositions, first_row, num_rows);
  auto labels = file_.read_lists<TokenId>(kMaskedIds, first_row, num_rows);
  match_lengths(kSegmentIds, kInputIds, segments, tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, labels, positions.offsets, report);
  SampleSet samples{.ids = std::vector<int64_t>(static_cast<size_t>(num_rows)),
                    .token_offsets = std::move(tokens.offsets),
                    .token_ids = std::move(tokens.values),
                    .segment_ids = std::move(segments.values),
                    .masked_offsets = std::move(positions.offsets),
                    .masked_positions = std::move(positions.values),
                    .masked_ids = std::move(labels.values),
                    .next_sentence_labels = std::vector<int8_t>(static_cast<size_t>(num_rows))};
  file_.read(kNextSentenceLabels, first_row, num_rows, samples.next_sentence_labels);
  return samples;
}

SampleSet ShardRows::read_fixed_length(int64_t first_row, int64_t num_rows,
                                       const ViolationReport& report) {
  SampleSet samples;
  FixedBlock block;
  for (int64_t done = 0; done < num_rows; done += kRowsPerBlock) {
    const int64_t rows = std::min(kRowsPerBlock, num_rows - done);
    const auto read = [&](const char* dataset, int64_t columns, auto& values) {
      values.resize(static_cast<size_t>(rows * columns));
      file_.read(dataset, first_row + done, rows, values);
    };
    read(kInputIds, row_tokens_, block.ids);
    read(kInputMask, row_tokens_, block.mask);
    read(kSegmentIds, row_tokens_, block.segments);
    read(kMaskedPositions, row_masked_, block.positions);
    read(kMaskedIds, row_masked_, block.labels);
    read(kNextSentenceLabels, 1, block.next);
    for (int64_t r = 0; r < rows; ++r) {
      append_row(block, static_cast<size_t>(r), {done + r, report}, samples);
    }
  }
  return samples;
}

ShardContents ShardRows::read_packed(int64_t first_row, int64_t num_rows, int64_t max_seq_tokens,
                                     const ViolationReport& report) {
  ShardContents contents;
  contents.row_offsets =
      unpack_rows({.tokens = file_.read_lists<TokenId>(kInputIds, first_row, num_rows),
                   .segments = file_.read_lists<int8_t>(kSegmentIds, first_row, num_rows),
                   .seq_tokens = file_.read_lists<int16_t>(kPackedTokens, first_row, num_rows),
                   .positions = file_.read_lists<int16_t>(kMaskedPositions, first_row, num_rows),
                   .labels = file_.read_lists<TokenId>(kMaskedIds, first_row, num_rows),
                   .seq_masked = file_.read_lists<int16_t>(kPackedMasked, first_row, num_rows),
                   .next = file_.read_lists<int8_t>(kNextSentenceLabels, first_row, num_rows)},
                  max_seq_tokens, report, contents.samples);
  return contents;
}

std::vector<int64_t> unpack_rows(PackedRows rows, int64_t max_seq_tokens,
                                 const ViolationReport& report, SampleSet& samples) {
  match_lengths(kSegmentIds, kInputIds, rows.segments, rows.tokens.offsets, report);
  match_lengths(kMaskedIds, kMaskedPositions, rows.labels, rows.positions.offsets, report);
  samples.token_ids.reserve(rows.tokens.values.size());
  samples.segment_ids.reserve(rows.tokens.values.size());
  std::vector<int64_t> row_offsets;
  for (int64_t row = 0; row < rows.tokens.size(); ++row) {
    row_offsets.push_back(samples.size());
    if (adds_up(rows, row, max_seq_tokens, report)) append_pack(rows, row, samples);
  }
  row_offsets.push_back(samples.size());
  return row_offsets;
}

std::vector<int64_t> ShardRows::packed_row_offsets() {
  std::vector<int64_t> offsets{0};
  for (const int64_t seqs : file_.list_lengths(kNextSentenceLabels)) {  // one for each sequence
    offsets.push_back(offsets.back() + seqs);
  }
  return offsets;
}

std::vector<int64_t> ShardRows::token_counts() {
  if (layout_ == ShardLayout::kVariableLength) return file_.list_lengths(kInputIds);
  if (layout_ == ShardLayout::kPacked) {
    const auto counts = file_.read_lists<int16_t>(kPackedTokens, 0, num_rows_).values;
    return {counts.begin(), counts.end()};
  }
  std::vector<int64_t> counts;
  std::vector<int8_t> mask;
  for (int64_t first = 0; first < num_rows_; first += kRowsPerBlock) {
    const int64_t rows = std::min(kRowsPerBlock, num_rows_ - first);
    mask.resize(static_cast<size_t>(rows * row_tokens_));
    file_.read(kInputMask, first, rows, mask);
    for (int64_t i = 0; i < rows; ++i) {
      const auto begin = mask.begin() + i * row_tokens_;
      counts.push_back(std::find(begin, begin + row_tokens_, int8_t{0}) - begin);
    }
  }
  return counts;
}

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
