#pragma once

#include <cstdint>
#include <functional>

namespace bertha {

/// Told after each finished shard, from one thread at a time: shards done, of how many.
using ShardProgress = std::function<void(int64_t num_done, int64_t num_shards)>;

/// Calls work(0) .. work(num_shards - 1), each once, on `num_threads` threads (0: one per core).
///
/// Errors    the first exception ends the work and is rethrown.
void for_each_shard(int64_t num_shards, int64_t num_threads,
                    const std::function<void(int64_t shard)>& work, const ShardProgress& progress);

}  // namespace bertha
