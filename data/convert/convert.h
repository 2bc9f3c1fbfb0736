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
/// A stopped run goes on where it was when it is started again. Holds 8 bytes per sequence when it
/// shuffles, and per thread one shard that is being made.
///
/// Errors    Error(kData) naming the file and what is wrong in it, or the folder to choose another
///           of; Error(kUsage) for options that do not go together.
ConvertResult convert_data(const ConvertOptions& options, const WorkProgress& progress);

/// place_of of the published shuffle: [n]  where each sequence goes.
std::vector<uint32_t> published_shuffle(int64_t num_seqs, uint64_t seed);

}  // namespace bertha
