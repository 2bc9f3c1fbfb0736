#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/format/global_heap.h"
#include "data/format/hdf5_file.h"
#include "data/format/sample_check.h"

namespace bertha {

/// A shard in memory, and which of its rows the samples came from.
struct ShardContents {
  SampleSet samples;
  std::vector<int64_t> row_offsets;  // [rows + 1]  first sample of each pack; empty: sample = row

  int64_t row_of(int64_t sample) const;
};

/// Extents of a shard: rows, and columns in the fixed-length layout.
struct ShardExtents {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t masked = 0;
};

/// A shard of any layout, opened to be read some rows at a time.
///
/// Errors    Error(kData) for what cannot be read at all; wrong values go to the report.
/// Threads   one per object.
class ShardRows {
 public:
  explicit ShardRows(const std::string& path);

  ShardLayout layout() const { return layout_; }
  int64_t num_rows() const { return extents_.rows; }
  /// The first sample of each pack and the end, of a packed shard; tokens are not read.
  std::vector<int64_t> packed_row_offsets();
  /// Tokens of every sample, of any layout; read without the tokens.
  std::vector<int64_t> token_counts();
  /// Rows [first_row, first_row + num_rows). Ids of the samples are 0, row_offsets begin at 0.
  ShardContents read(int64_t first_row, int64_t num_rows, const SampleLimits& limits,
                     const ViolationReport& report);

 private:
  const std::vector<std::byte>& descriptors_of(const char* dataset);
  template <class T>
  RaggedRows<T> read_lists(const char* dataset, int64_t first_row, int64_t num_rows);
  void read_variable_length(int64_t first_row, int64_t num_rows, const ViolationReport& report,
                            ShardContents& contents);
  void read_packed(int64_t first_row, int64_t num_rows, int64_t max_seq_tokens,
                   const ViolationReport& report, ShardContents& contents);
  void read_fixed_length(int64_t first_row, int64_t num_rows, const ViolationReport& report,
                         ShardContents& contents);

  Hdf5Input file_;
  ShardLayout layout_;
  ShardExtents extents_;
  std::unique_ptr<GlobalHeapReader> heap_;                     // of the others
  std::map<std::string, std::vector<std::byte>> descriptors_;  // of lists
};

/// read_shard with a choice of what happens to wrong values: `report` hears of each. When it
/// returns, the row is kept as far as it makes sense (lists cut or filled to the row's tokens; a
/// pack whose lengths do not add up is left out).
///
/// Errors    Error(kData) for what cannot be read at all.
ShardContents read_shard_reporting(const std::string& path, int64_t first_sample_id,
                                   const SampleLimits& limits, const ViolationReport& report);

/// Throws Error(kData) naming the shard, at the first violation.
ViolationReport stop_at_violation(const std::string& path);

}  // namespace bertha
