#pragma once

#include <cstdint>
#include <vector>

#include "harness/comm/mpi_communicator.h"

namespace bertha {

/// One round of messages between ranks: add them all, then wait. Messages between two ranks
/// arrive in the order in which they were added. Messages of any length; empty ones are left out
/// on both sides.
class Exchange {
 public:
  explicit Exchange(const Communicator& comm) : comm_(comm) {}

  void send(const void* data, int64_t bytes, int to);
  void receive(void* data, int64_t bytes, int from);
  /// Blocks: until everything added, which belongs to `call`, has been sent and received.
  void wait(CollectiveCall call);

 private:
  const Communicator& comm_;
  std::vector<MPI_Request> requests_;
};

}  // namespace bertha
