#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace bertha {

/// Threads that live as long as the pool and share the blocks of one loop at a time.
///
/// Exact     the blocks handed to `work` are the same for every number of threads: each is
///           [k * grain, min((k + 1) * grain, count)), visited once. Sums that are kept per block
///           and combined in block order afterwards therefore do not depend on the threads.
/// Errors    what `work` throws is rethrown in the caller after all blocks in progress ended; the
///           exception of the lowest failing block that ran wins.
/// Threads   one caller at a time; not from inside `work`. With one thread no thread is started.
class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;

  /// Blocks: until every block of [0, count) has been worked on.
  void for_range(int64_t count, int64_t grain,
                 const std::function<void(int64_t begin, int64_t end)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bertha
