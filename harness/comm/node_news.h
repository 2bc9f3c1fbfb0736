#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include "harness/comm/mpi_communicator.h"
#include "harness/comm/rank_board.h"

namespace bertha {

/// Tells the board of the first node where the ranks of all other nodes stand, and the boards of
/// those where rank 0 stands and whether anybody has got on. One rank of each node sends a message
/// of some 140 bytes per rank about once a second; nobody ever waits for an answer.
///
/// Threads   exchange() on one at a time, and none when this ends.
class NodeNews {
 public:
  /// All ranks call it, with the ranks of their own node and its board.
  NodeNews(const Communicator& world, const Communicator& node, RankBoard& board);
  NodeNews(const NodeNews&) = delete;
  NodeNews& operator=(const NodeNews&) = delete;
  /// All ranks end it together, unless an exception unwinds.
  ~NodeNews();

  /// Sends and receives what is due. Does not block.
  void exchange();

 private:
  /// What goes to the first node and back.
  struct Message {
    std::vector<Standing> standings;
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_under_way() const { return request != MPI_REQUEST_NULL; }
  };
  /// Of the first node: one per other node. Of another node: the first node.
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
  std::vector<int> node_ranks_;  // of this node, among all
  std::vector<Peer> peers_;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace bertha
