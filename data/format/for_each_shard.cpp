#include "data/format/for_each_shard.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bertha {

void for_each_shard(int64_t num_shards, int64_t num_threads,
                    const std::function<void(int64_t shard)>& work, const ShardProgress& progress) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;  // guards num_done, error and the calls of progress
  int64_t num_done = 0;
  std::exception_ptr error;

  const auto run = [&] {
    for (int64_t shard = next++; shard < num_shards; shard = next++) {
      try {
        work(shard);
        const std::lock_guard lock(mutex);
        ++num_done;
        if (progress) progress(num_done, num_shards);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = num_shards;
      }
    }
  };

  const int64_t wanted =
      num_threads > 0 ? num_threads : static_cast<int64_t>(std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  try {
    for (int64_t i = 1; i < std::clamp<int64_t>(wanted, 1, num_shards); ++i) {
      threads.emplace_back(run);
    }
  } catch (...) {
    next = num_shards;  // the threads that have started end after the shard they work on
    throw;
  }
  run();
  threads.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace bertha
