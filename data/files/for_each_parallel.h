#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace bertha {

/// Told after each finished item, from one thread at a time: how many are done, of how many.
using ItemProgress = std::function<void(int64_t num_done, int64_t num_items)>;

/// Called with the progress of work in phases, by one thread at a time: amount done, total, unit.
using WorkProgress = std::function<void(const std::string& phase, const std::string& unit,
                                        int64_t num_done, int64_t num_total)>;
ItemProgress progress_of(const WorkProgress& progress, const std::string& phase,
                         const std::string& unit);

/// Counts progress from any thread, and reports it to `progress`, if any.
class SharedProgress {
 public:
  SharedProgress(ItemProgress progress, int64_t total)
      : progress_(std::move(progress)), total_(total) {}
  /// `more` is added to the total: negative for work that turns out to be done already.
  void add(int64_t done, int64_t more = 0);

 private:
  ItemProgress progress_;
  std::mutex mutex_;  // guards what follows and the calls of progress_
  int64_t done_ = 0;
  int64_t total_;
};

/// Calls work(index) for index in [0, count), in increasing order of start, on `workers` threads
/// (0 = one per processor), or as many as can be started. After a failure no further work starts;
/// the first failure is rethrown.
void for_each_parallel(int64_t count, int64_t workers,
                       const std::function<void(int64_t index)>& work,
                       const ItemProgress& progress = {});

/// Thrown by work that stops because other work failed; for_each_parallel swallows it.
struct Cancelled {};

/// The same for long work, which may check `cancelled`, whether other work failed, and throw
/// Cancelled.
void for_each_parallel(
    int64_t count, int64_t workers,
    const std::function<void(int64_t index, const std::function<bool()>& cancelled)>& work);

}  // namespace bertha
