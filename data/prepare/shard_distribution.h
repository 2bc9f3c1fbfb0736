#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/shard_file.h"

namespace bertha {

/// Finished parts, in order.
struct PartFiles {
  std::vector<std::string> paths;
  std::vector<int64_t> samples;  // [parts]
  SampleLimits limits;

  int64_t num_samples() const;
};

/// Copies the samples of the parts in order into shards of these paths and sizes. Holds one part in
/// memory.
void distribute_shards(const PartFiles& parts, const std::vector<std::string>& paths,
                       ShardLayout layout, const ItemProgress& progress);

/// The published selection: sample i of n is number int(i * (N / n)), in doubles.
/// Error(kData) when N < n.
std::vector<int64_t> eval_selection(int64_t num_samples, int64_t num_selected);

/// Writes the selected samples of the parts as one shard.
void write_eval_shard(const PartFiles& parts, const std::string& path, ShardLayout layout,
                      int64_t num_selected);

}  // namespace bertha
