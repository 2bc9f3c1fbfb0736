#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/format/shard_file.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// The shards of a data set and where their samples begin in the numbering of all samples.
struct ShardTable {
  std::vector<std::string> paths;  // [s]
  std::vector<int64_t> num_seqs;   // [s]
  std::vector<int64_t> first_ids;  // [s]  global id of row 0
  std::vector<std::string> xxh3;   // [s]  of the file, as it was made; empty = not known
  int64_t total_seqs = 0;
};

/// Shard s whole.
///
/// Errors    Error(kData) naming it: not as it was made, damaged, or changed since the table.
SampleSet read_shard(const ShardTable& table, int64_t s, const SampleLimits& limits);

/// Looks into every shard; the ranks share the work and end with the same table, or with the same
/// error. Collective. `xxh3` is empty or has an entry per path.
///
/// Errors    Error(kData) naming the shard, where ranks see shards of other names, and when there
///           is no shard or no sample.
ShardTable inspect_shards(const std::vector<std::string>& paths,
                          const std::vector<std::string>& xxh3, Transport& transport);

}  // namespace bertha
