#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "data/pipeline/transport.h"

namespace bertha {

/// Ranks as threads of one process: a Transport for each, over one mutex. Waiting ranks sleep.
///
/// Errors    abort() makes every call under way and every later one throw Error(kEnvironment),
///           as the end of the job does with MPI.
/// Threads   one call at a time per rank. The destructor waits until no rank is inside a call.
class ThreadWorld {
 public:
  explicit ThreadWorld(int num_ranks);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  Transport& transport(int rank);
  void abort();
  /// Bytes that ranks have sent to other ranks so far.
  int64_t bytes_sent() const;

 private:
  class AllToAll;
  class RankTransport;
  std::unique_ptr<AllToAll> all_to_all_;
  std::vector<std::unique_ptr<RankTransport>> transports_;
};

/// Runs `work` once per rank, each on a thread of its own. When one throws, the world is aborted,
/// and the exception of the first rank to throw is rethrown at the end.
void run_thread_ranks(int num_ranks, const std::function<void(Transport& transport)>& work);

}  // namespace bertha
