#include "data/files/for_each_parallel.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bertha {
namespace {

/// Threads that a limit of addresses (ulimit -v) leaves room for: each has a stack of 8 MiB and an
/// arena of malloc of up to 128 MiB, and needs as much for its work.
int64_t max_threads() {
  constexpr rlim_t kThreadBytes = rlim_t{256} << 20;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  return std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur / kThreadBytes), 1);
}

}  // namespace

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
  const int64_t num_threads = std::min({std::max<int64_t>(wanted, 1), max_threads(), count});
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(num_threads));
    try {
      for (int64_t i = 0; i < num_threads; ++i) threads.emplace_back(run);
    } catch (const std::exception&) {
      // Beyond a limit of processes or memory; the threads that have started do all the work.
    }
    if (threads.empty()) run();
  }
  if (error) std::rethrow_exception(error);
}

void for_each_parallel(int64_t count, int64_t workers,
                       const std::function<void(int64_t index)>& work,
                       const ItemProgress& progress) {
  SharedProgress shared(progress, count);
  for_each_parallel(count, workers, [&](int64_t index, const std::function<bool()>&) {
    work(index);
    shared.add(1);
  });
}

void SharedProgress::add(int64_t done, int64_t more) {
  const std::lock_guard lock(mutex_);
  done_ += done;
  total_ += more;
  if (progress_) progress_(done_, total_);
}

ItemProgress progress_of(const WorkProgress& progress, const std::string& phase,
                         const std::string& unit) {
  if (!progress) return {};
  return [=](int64_t done, int64_t total) { progress(phase, unit, done, total); };
}

}  // namespace bertha
