#pragma once

#include <mpi.h>

#include <span>

#include "harness/comm/rank_board.h"

namespace bertha {

/// A duplicate of a communicator. Move-only. Creation and destruction are collective calls; destroy
/// it before MPI_Finalize.
class Communicator {
 public:
  /// Creation and waits are recorded on the board, if there is one, as collective calls of this
  /// rank.
  explicit Communicator(MPI_Comm parent, RankBoard* board = nullptr);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  RankBoard* board() const { return board_; }

  /// Waits for all requests of one call and completes them. Ranks and threads share cores, so no
  /// thread spins for long, as in MPI's blocking calls: it polls for 200 us, or 100 us for the
  /// pipeline, then sleeps for 50 to 250 us between polls.
  void wait_for(std::span<MPI_Request> requests, CollectiveCall call) const;
  void wait_for(MPI_Request& request, CollectiveCall call) const { wait_for({&request, 1}, call); }

 private:
  RankBoard* board_ = nullptr;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace bertha
