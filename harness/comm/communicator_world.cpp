#include "harness/comm/communicator_world.h"

#include <cstdint>
#include <cstdlib>
#include <exception>

#include "harness/comm/mpi_check.h"
#include "harness/comm/mpi_collectives.h"
#include "harness/comm/mpi_transport.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

void broadcast_bytes(const Communicator& ranks, void* data, int64_t bytes, int root) {
  if (bytes > INT32_MAX) {
    fail(ExitCode::kEnvironment, "a text of ", bytes, " bytes for all ranks, want at most ",
         INT32_MAX);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  BERTHA_MPI_CHECK(
      MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root, ranks.get(), &request));
  ranks.wait_for(request, Patience::kLatency);
}

}  // namespace

std::unique_ptr<Transport> CommunicatorWorld::make_transport() {
  return make_mpi_transport(communicator());
}

std::unique_ptr<Collectives> CommunicatorWorld::make_host_collectives(Device& device) {
  return make_mpi_collectives(communicator(), device);
}

int CommunicatorWorld::agree_max(int value) {
  int largest = value;
  MPI_Request request = MPI_REQUEST_NULL;
  BERTHA_MPI_CHECK(
      MPI_Iallreduce(&value, &largest, 1, MPI_INT, MPI_MAX, communicator().get(), &request));
  communicator().wait_for(request, Patience::kLatency);
  return largest;
}

std::string CommunicatorWorld::broadcast(const std::string& text, int root) {
  int64_t bytes = static_cast<int64_t>(text.size());
  broadcast_bytes(communicator(), &bytes, int64_t{sizeof(bytes)}, root);
  std::string result = rank() == root ? text : std::string(static_cast<size_t>(bytes), '\0');
  broadcast_bytes(communicator(), result.data(), bytes, root);
  return result;
}

void CommunicatorWorld::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  BERTHA_MPI_CHECK(MPI_Ibarrier(communicator().get(), &request));
  communicator().wait_for(request, Patience::kLatency);
}

void CommunicatorWorld::abort(int exit_code) {
  int ranks = 1;
  if (MPI_Comm_size(MPI_COMM_WORLD, &ranks) == MPI_SUCCESS && ranks > 1) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

NodeCommunicator::NodeCommunicator(const Communicator& parent) {
  BERTHA_MPI_CHECK(MPI_Comm_split_type(parent.get(), MPI_COMM_TYPE_SHARED, parent.rank(),
                                       MPI_INFO_NULL, &comm_));
}

NodeCommunicator::~NodeCommunicator() {
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

}  // namespace bertha
