#include "data/format/for_each_shard.h"

#include <mutex>

#include "data/files/for_each_parallel.h"

namespace bertha {

void for_each_shard(int64_t num_shards, int64_t num_threads,
                    const std::function<void(int64_t shard)>& work, const ShardProgress& progress) {
  std::mutex mutex;  // guards num_done and the calls of progress
  int64_t num_done = 0;
  for_each_parallel(num_shards, static_cast<int>(num_threads), [&](int64_t shard, const auto&) {
    work(shard);
    const std::lock_guard lock(mutex);
    ++num_done;
    if (progress) progress(num_done, num_shards);
  });
}

}  // namespace bertha
