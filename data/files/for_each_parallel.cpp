#include "data/files/for_each_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bertha {

void for_each_parallel(
    int64_t count, int64_t workers,
    const std::function<void(int64_t index, const std::function<bool()>& cancelled)>& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;
  const std::function<bool()> cancelled = [&] { return failed.load(); };
  const auto run = [&] {
    for (int64_t index = next++; index < count && !failed; index = next++) {
      try {
        work(index, cancelled);
      } catch (const Cancelled&) {
        return;
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!error) error = std::current_exception();
        failed = true;
      }
    }
  };
  const int64_t wanted = workers > 0 ? workers : std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> threads;
    try {
      for (int64_t i = 0; i < std::min(std::max<int64_t>(wanted, 1), count); ++i) {
        threads.emplace_back(run);
      }
    } catch (...) {
      failed = true;  // the threads that have started end soon
      throw;
    }
  }
  if (error) std::rethrow_exception(error);
}

void for_each_parallel(int64_t count, int64_t workers,
                       const std::function<void(int64_t index)>& work,
                       const ItemProgress& progress) {
  std::mutex mutex;  // guards num_done and the calls of progress
  int64_t num_done = 0;
  for_each_parallel(count, workers, [&](int64_t index, const std::function<bool()>&) {
    work(index);
    const std::lock_guard lock(mutex);
    ++num_done;
    if (progress) progress(num_done, count);
  });
}

ItemProgress progress_of(const WorkProgress& progress, const std::string& phase,
                         const std::string& unit) {
  if (!progress) return {};
  return [=](int64_t done, int64_t total) { progress(phase, unit, done, total); };
}

}  // namespace bertha
