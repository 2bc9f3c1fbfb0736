#pragma once

#include <memory>

#include "harness/comm/communicator_world.h"

namespace bertha::testing {

/// All ranks of the test, as if each `ranks_per_node` of them in a row, which divide their number,
/// were on a node of their own.
class PretendedNodes final : public CommunicatorWorld {
 public:
  explicit PretendedNodes(int ranks_per_node) : PretendedNodes(MPI_COMM_WORLD, ranks_per_node) {}

  int node_rank() const override { return rank() % ranks_per_node_; }
  int node_size() const override { return ranks_per_node_; }
  std::unique_ptr<World> make_node_world() override {
    const PartCommunicator node(communicator().get(), rank() / ranks_per_node_);
    return std::unique_ptr<World>(new PretendedNodes(node.get(), ranks_per_node_));
  }

 private:
  PretendedNodes(MPI_Comm ranks, int ranks_per_node)
      : ranks_(ranks), ranks_per_node_(ranks_per_node) {}
  const Communicator& communicator() const override { return ranks_; }

  Communicator ranks_;
  int ranks_per_node_;
};

}  // namespace bertha::testing
