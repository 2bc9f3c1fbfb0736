#pragma once

#include <mpi.h>

#include <vector>

#include "harness/comm/rank_board.h"

namespace bertha {

/// How long a waiting thread keeps its core before it sleeps between polls. Ranks and threads
/// share cores here, so no thread may spin for long, as MPI's own blocking calls do.
enum class Patience {
  kLatency,     // the training thread: 200 us of polling, then sleeps of 50 to 250 us
  kBackground,  // pipeline threads: 100 us of polling, then the same sleeps
};

/// A duplicate of a communicator that returns errors instead of aborting. Move-only.
/// Making and destroying one are collective calls; destroy before MPI_Finalize.
class Communicator {
 public:
  /// The making and the waits count as moves of this rank on the board, if there is one.
  explicit Communicator(MPI_Comm parent, RankBoard* board = nullptr);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  RankBoard* board() const { return board_; }

  /// Waits for all requests and completes them.
  void wait_for(std::vector<MPI_Request>& requests, Patience patience) const;
  void wait_for(MPI_Request& request, Patience patience) const;

 private:
  void count_move(Patience patience) const;

  RankBoard* board_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace bertha
