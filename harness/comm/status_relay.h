#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include "harness/comm/mpi_communicator.h"
#include "harness/comm/rank_board.h"

namespace bertha {

/// Sends the status of all ranks to the board of the first node, and the status of rank 0 and the
/// progress of all ranks together to the boards of the other nodes. One rank per node sends a
/// message of about 140 bytes per rank about once a second; no rank ever waits for a reply.
///
/// Threads   relay() on one at a time; none during destruction.
class StatusRelay {
 public:
  /// All ranks call it with the ranks of their own node and its board.
  StatusRelay(const Communicator& world, const Communicator& node, RankBoard& board);
  StatusRelay(const StatusRelay&) = delete;
  StatusRelay& operator=(const StatusRelay&) = delete;
  /// All ranks destroy it together, unless an exception unwinds.
  ~StatusRelay();

  /// Sends and receives pending statuses; does not block.
  void relay();

 private:
  /// A message to the first node and its reply.
  struct Message {
    std::vector<RankStatus> statuses;
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_under_way() const { return request != MPI_REQUEST_NULL; }
  };
  /// On the first node, one peer per other node; on another node, only the first node.
  struct Peer {
    int rank = 0;  // among the leaders
    Message sent = {};
    Message received = {};
  };

  bool is_leader() const { return leaders_ != MPI_COMM_NULL; }
  bool is_first() const { return leader_rank_ == 0; }
  void answer(Peer& peer);
  void ask(Peer& peer);
  void start_send(Peer& peer);
  void start_receive(Peer& peer);
  void settle();

  RankBoard& board_;
  MPI_Comm leaders_ = MPI_COMM_NULL;  // one rank per node
  int leader_rank_ = -1;
  std::vector<int> node_ranks_;  // this node's ranks, numbered among all
  std::vector<Peer> peers_;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace bertha
