#include "kernels/base/cpu/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {
namespace {

/// One loop in progress: blocks are taken from a counter, so that uneven blocks balance.
struct Loop {
  int64_t count = 0;
  int64_t grain = 1;
  int64_t blocks = 0;
  const std::function<void(int64_t, int64_t)>* work = nullptr;
  std::atomic<int64_t> next_block{0};
  std::mutex failure_mutex;
  int64_t failed_block = std::numeric_limits<int64_t>::max();
  std::exception_ptr failure;

  void take_blocks() {
    for (int64_t block = next_block++; block < blocks; block = next_block++) {
      try {
        (*work)(block * grain, std::min((block + 1) * grain, count));
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failure_mutex);
        if (block < failed_block) {
          failed_block = block;
          failure = std::current_exception();
        }
        next_block = blocks;
      }
    }
  }
};

}  // namespace

struct WorkerPool::State {
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable finished;
  Loop* loop = nullptr;  // guarded by mutex, as are the next three
  int64_t generation = 0;
  int busy_workers = 0;
  bool stopping = false;
  std::vector<std::thread> workers;

  void work_until_stopped() {
    int64_t seen_generation = 0;
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      start.wait(lock, [&] { return stopping || generation != seen_generation; });
      if (stopping) return;
      seen_generation = generation;
      Loop& current = *loop;
      lock.unlock();
      current.take_blocks();
      lock.lock();
      if (--busy_workers == 0) finished.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    start.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>()) {
  BERTHA_CHECK(threads >= 1, "threads = ", threads, ", want at least 1");
  state_->workers.reserve(static_cast<size_t>(threads));
  try {
    for (int worker = 1; worker < threads; ++worker) {
      state_->workers.emplace_back([this] { state_->work_until_stopped(); });
    }
  } catch (const std::system_error& error) {
    state_->stop();
    fail(ExitCode::kEnvironment, "thread ", state_->workers.size() + 2, " of ", threads,
         " cannot be started: ", error.code().message(),
         "; use fewer threads or processes, or raise the limit of processes (ulimit -u)");
  }
}

WorkerPool::~WorkerPool() { state_->stop(); }

int WorkerPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void WorkerPool::for_range(int64_t count, int64_t grain,
                           const std::function<void(int64_t begin, int64_t end)>& work) {
  BERTHA_CHECK(count >= 0 && grain >= 1, "count = ", count, ", grain = ", grain);
  Loop loop;
  loop.count = count;
  loop.grain = grain;
  loop.blocks = (count + grain - 1) / grain;
  loop.work = &work;
  const bool shared = loop.blocks > 1 && !state_->workers.empty();
  if (shared) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->loop = &loop;
    state_->busy_workers = static_cast<int>(state_->workers.size());
    ++state_->generation;
  }
  if (shared) state_->start.notify_all();
  loop.take_blocks();
  if (shared) {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->finished.wait(lock, [&] { return state_->busy_workers == 0; });
    state_->loop = nullptr;
  }
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace bertha
