#include "kernels/base/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "kernels/base/error.h"
#include "tests/support/exit_within.h"

namespace bertha {
namespace {

std::set<std::pair<int64_t, int64_t>> blocks_of(WorkerPool& pool, int64_t count, int64_t grain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> blocks;
  int64_t calls = 0;
  pool.for_range(count, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard<std::mutex> lock(mutex);
    blocks.emplace(begin, end);
    ++calls;
  });
  EXPECT_EQ(calls, static_cast<int64_t>(blocks.size()));
  return blocks;
}

TEST(WorkerPool, HandsOutTheSameBlocksForEveryNumberOfThreads) {
  WorkerPool one(1);
  WorkerPool four(4);
  for (const int64_t count : {0, 1, 7, 33, 511}) {
    for (const int64_t grain : {1, 7, 64, 1000}) {
      const auto blocks = blocks_of(one, count, grain);
      EXPECT_EQ(blocks, blocks_of(four, count, grain));
      int64_t next = 0;
      for (const auto& [begin, end] : blocks) {
        EXPECT_EQ(begin, next);
        EXPECT_EQ(end, std::min(begin + grain, count));
        next = end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(WorkerPool, WithOneThreadWorksInTheCaller) {
  WorkerPool pool(1);
  EXPECT_EQ(pool.threads(), 1);
  const std::thread::id caller = std::this_thread::get_id();
  pool.for_range(10, 1, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(WorkerPool, SharesBlocksBetweenItsThreads) {
  WorkerPool pool(2);
  std::atomic<int> waiting{0};
  // Each block waits for the other one: this ends only when two threads work at once.
  pool.for_range(2, 1, [&](int64_t, int64_t) {
    ++waiting;
    while (waiting < 2) std::this_thread::yield();
  });
  EXPECT_EQ(waiting, 2);
}

TEST(WorkerPool, RethrowsInTheCallerAndWorksOn) {
  for (const int threads : {1, 3}) {
    WorkerPool pool(threads);
    const auto failing = [](int64_t begin, int64_t) {
      if (begin == 5) throw std::runtime_error("block 5");
    };
    EXPECT_THROW(pool.for_range(100, 1, failing), std::runtime_error);
    std::atomic<int64_t> sum{0};
    pool.for_range(100, 3, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 100);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The stacks of threads do not fit: the system then says the same as at its limit of processes.
TEST(WorkerPoolDeathTest, ThreadsThatCannotBeStartedAreAnErrorOfTheEnvironment) {
  EXPECT_EXIT(exit_within(int64_t{64} << 20, [] { WorkerPool(64); }), testing::ExitedWithCode(5),
              "thread [0-9]+ of 64 cannot be started: Resource temporarily unavailable; use "
              "fewer threads or processes");
}
#endif

TEST(WorkerPool, RefusesZeroThreads) { EXPECT_THROW(WorkerPool(0), Error); }

}  // namespace
}  // namespace bertha
