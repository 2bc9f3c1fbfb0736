#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>

#include "harness/comm/mpi_communicator.h"
#include "harness/comm/world.h"

namespace bertha {

/// What a world does by means of one communicator alone.
class CommunicatorWorld : public World {
 public:
  int rank() const override { return communicator().rank(); }
  int size() const override { return communicator().size(); }
  std::unique_ptr<Transport> make_transport() override;
  std::unique_ptr<Collectives> make_host_collectives(Device& device) override;
  int agree_max(int value) override;
  void broadcast_bytes(std::span<std::byte> bytes, int root) override;
  void barrier() override;
  /// Of the whole job, whichever ranks this world has.
  [[noreturn]] void abort(int exit_code) override;

 protected:
  virtual const Communicator& communicator() const = 0;
};

/// The ranks of `parent` under one kernel. Made and destroyed by all ranks together.
class NodeCommunicator {
 public:
  explicit NodeCommunicator(const Communicator& parent);
  NodeCommunicator(const NodeCommunicator&) = delete;
  NodeCommunicator& operator=(const NodeCommunicator&) = delete;
  ~NodeCommunicator();
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace bertha
