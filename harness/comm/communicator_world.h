#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>

#include "harness/comm/mpi_communicator.h"
#include "harness/comm/world.h"

namespace bertha {

/// The functions of a world that need only one communicator.
class CommunicatorWorld : public World {
 public:
  int rank() const override { return communicator().rank(); }
  int size() const override { return communicator().size(); }
  std::unique_ptr<Transport> make_transport() override;
  std::unique_ptr<Collectives> make_host_collectives(Device& device) override;
  int agree_max(int value) override;
  void broadcast_bytes(std::span<std::byte> bytes, int root) override;
  void barrier() override;
  std::unique_ptr<World> make_node_world() override;
  std::unique_ptr<World> make_peer_world() override;
  /// Ends the whole job, including ranks outside this world.
  [[noreturn]] void abort(int exit_code) override;

 protected:
  virtual const Communicator& communicator() const = 0;
};

/// Some of a communicator's ranks, in its order. All ranks create and destroy it together.
class PartCommunicator {
 public:
  /// Contains the ranks with the same color.
  PartCommunicator(MPI_Comm parent, int color);
  PartCommunicator(const PartCommunicator&) = delete;
  PartCommunicator& operator=(const PartCommunicator&) = delete;
  ~PartCommunicator();
  MPI_Comm get() const { return comm_; }

 protected:
  PartCommunicator() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The ranks of one machine that NCCL also treats as one node: NCCL_HOSTID in the environment can
/// split a machine into several nodes.
class NodeCommunicator final : public PartCommunicator {
 public:
  explicit NodeCommunicator(const Communicator& parent);
};

}  // namespace bertha
