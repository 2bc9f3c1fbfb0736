#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/format/hdf5_input.h"
#include "data/format/sample.h"
#include "data/format/shard_layout.h"

namespace bertha {

// Layers of reading a shard, from the top: this file converts rows of any layout to checked
// samples; hdf5_input reads rows of one dataset; global_heap reads their lists, bypassing the HDF5
// library; hdf5_library calls that library. sample.h has the samples and their checks,
// shard_layout.h the datasets of each layout.

/// The layout and the number of samples, without reading them.
struct ShardInfo {
  ShardLayout layout = ShardLayout::kVariableLength;
  int64_t num_rows = 0;     // rows of the datasets: packs in a packed shard, else samples
  int64_t num_samples = 0;  // sequences
};
ShardInfo inspect_shard(const std::string& path);

/// Reads a whole shard of any layout into memory; ids count up from first_sample_id.
///
/// Errors    Error(kData) naming the file and, if possible, dataset, row and value:
///           missing, empty, truncated, wrong dtype or rank, ids beyond the vocabulary, masked
///           positions unsorted or outside the sequence, lengths beyond the limits.
/// Threads   any; HDF5 is entered by one thread at a time.
SampleSet read_shard(const std::string& path, int64_t first_sample_id, const SampleLimits& limits);

/// A shard in memory, and the rows of its samples.
struct ShardContents {
  SampleSet samples;
  std::vector<int64_t> row_offsets;  // [rows + 1]  first sample of each pack; empty: sample = row

  int64_t row_of(int64_t sample) const;
};

/// read_shard with a handler for invalid values: `report` is called for each. If it returns, the
/// row is kept as far as possible (lists truncated or padded to the row's tokens; a pack whose
/// lengths do not add up is left out).
///
/// Errors    Error(kData) for data that cannot be read at all.
ShardContents read_shard_reporting(const std::string& path, int64_t first_sample_id,
                                   const SampleLimits& limits, const ViolationReport& report);

/// Throws Error(kData) naming the shard, at the first violation.
ViolationReport stop_at_violation(const std::string& path);

/// A shard of any layout, opened for reading some rows at a time.
///
/// Errors    Error(kData) for data that cannot be read at all; wrong values go to the report.
/// Threads   one per object.
class ShardRows {
 public:
  explicit ShardRows(const std::string& path);

  ShardLayout layout() const { return layout_; }
  int64_t num_rows() const { return num_rows_; }
  /// The first sample of each pack and the end, of a packed shard; tokens are not read.
  std::vector<int64_t> packed_row_offsets();
  /// Tokens of every sample, of any layout; read without the tokens.
  std::vector<int64_t> token_counts();
  /// Rows [first_row, first_row + num_rows). Ids of the samples are 0, row_offsets begin at 0.
  ShardContents read(int64_t first_row, int64_t num_rows, const SampleLimits& limits,
                     const ViolationReport& report);

 private:
  void expect_dataset(const DatasetFormat& format);
  SampleSet read_variable_length(int64_t first_row, int64_t num_rows,
                                 const ViolationReport& report);
  SampleSet read_fixed_length(int64_t first_row, int64_t num_rows, const ViolationReport& report);
  ShardContents read_packed(int64_t first_row, int64_t num_rows, int64_t max_seq_tokens,
                            const ViolationReport& report);

  Hdf5Input file_;
  ShardLayout layout_;
  int64_t num_rows_ = -1;   // rows of every dataset
  int64_t row_tokens_ = 0;  // columns in the fixed-length layout
  int64_t row_masked_ = 0;
};

/// The datasets of packed rows as stored in the file.
struct PackedRows {
  RaggedRows<TokenId> tokens;
  RaggedRows<int8_t> segments;
  RaggedRows<int16_t> seq_tokens;
  RaggedRows<int16_t> positions;  // in the pack
  RaggedRows<TokenId> labels;
  RaggedRows<int16_t> seq_masked;
  RaggedRows<int8_t> next;
};

/// Splits the packs: adds their sequences to `samples`, with positions counted from their own first
/// token, and returns the first sequence of each row, and the end. Calls `report` for a pack whose
/// lengths do not add up or exceed max_seq_tokens; if it returns, the pack is left out.
std::vector<int64_t> unpack_rows(PackedRows rows, int64_t max_seq_tokens,
                                 const ViolationReport& report, SampleSet& samples);

}  // namespace bertha
