#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/convert/shard_job.h"
#include "data/format/checksum_list.h"
#include "data/format/shard_layout.h"

namespace bertha {

struct ConvertOptions {
  SourceOptions source;
  std::string output_dir;
  ShardLayout layout = ShardLayout::kVariableLength;  // or kFixedLength
  int64_t num_shards = 0;                             // 0: as the source's files, with their names
  std::optional<uint64_t> shuffle_seed;               // none: the order stays
  std::string checksum_list;                          // to compare the outcome with; empty: none
};

struct ConvertResult : JobResult {
  std::vector<ChecksumDifference> checksum_differences = {};
};

/// Writes a data set, in any published form, again as HDF5 shards: in another layout, other sizes
/// (shard_sizes() in shard_names.h), or shuffled over all sequences as the published script does:
/// the list of all sequences in file order through random.Random(seed).shuffle, cut to the shards.
/// With the official data, 4320 shards and seed 24 the result is the official one.
///
/// A stopped run continues where it stopped when it is started again. Needs memory of 8 bytes per
/// sequence for a shuffle, and of one shard per thread.
///
/// Errors    Error(kData) naming the file and its fault, or the folder to replace; Error(kUsage)
///           for options that exclude each other.
ConvertResult convert_data(const ConvertOptions& options, const WorkProgress& progress);

/// place_of for the published shuffle: [n], the new place of each sequence.
std::vector<uint32_t> published_shuffle(int64_t num_seqs, uint64_t seed);

}  // namespace bertha
