#pragma once

#include <cstdint>
#include <string>

#include "data/format/sample.h"

namespace bertha {

/// The official HDF5 layouts; FORMAT.md has them byte for byte. A row of kPacked is a pack of some
/// sequences; it becomes these sequences when it is read, and nothing else knows of packs.
enum class ShardLayout : uint8_t { kVariableLength, kFixedLength, kPacked };

/// What a sample may hold; everything outside is an error that names shard, row and value.
struct SampleLimits {
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;
  int64_t vocab_size = 30522;
};

/// The layout and the number of samples, without reading them.
struct ShardInfo {
  ShardLayout layout = ShardLayout::kVariableLength;
  int64_t num_rows = 0;     // of the datasets: packs in a packed shard, else samples
  int64_t num_samples = 0;  // sequences
};
ShardInfo inspect_shard(const std::string& path);

/// A whole shard in memory, whichever layout it has; ids count up from first_sample_id.
///
/// Errors    Error(kData) naming the file, and dataset, row and value where one is at fault:
///           missing, empty, truncated, wrong dtype or rank, ids beyond the vocabulary, masked
///           positions unsorted or outside the sequence, lengths beyond the limits.
/// Threads   any; HDF5 is entered by one thread at a time.
SampleSet read_shard(const std::string& path, int64_t first_sample_id, const SampleLimits& limits);

}  // namespace bertha
