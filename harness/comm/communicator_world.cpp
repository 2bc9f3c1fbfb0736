#include "harness/comm/communicator_world.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string_view>

#include "harness/comm/mpi_check.h"
#include "harness/comm/mpi_collectives.h"
#include "harness/comm/mpi_transport.h"

namespace bertha {
namespace {

constexpr size_t kMaxMessageBytes = size_t{1} << 30;  // MPI counts are int

/// A world of some ranks of another world.
class PartWorld final : public CommunicatorWorld {
 public:
  PartWorld(const Communicator& parent, const PartCommunicator& part)
      : ranks_(part.get(), parent.board()), node_(NodeCommunicator(ranks_).get()) {}
  int node_rank() const override { return node_.rank(); }
  int node_size() const override { return node_.size(); }
  RankBoard& board() override {
    return ranks_.board() == nullptr ? World::board() : *ranks_.board();
  }

 private:
  const Communicator& communicator() const override { return ranks_; }

  Communicator ranks_;
  Communicator node_;
};

/// A non-negative color, as MPI requires.
int color_of(const char* text) {
  return static_cast<int>(std::hash<std::string_view>{}(text)&INT_MAX);
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
  communicator().wait_for(request, CollectiveCall::kAgreement);
  return largest;
}

void CommunicatorWorld::broadcast_bytes(std::span<std::byte> bytes, int root) {
  while (!bytes.empty()) {
    const std::span<std::byte> message = bytes.first(std::min(bytes.size(), kMaxMessageBytes));
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Ibcast(message.data(), static_cast<int>(message.size()), MPI_BYTE, root,
                                communicator().get(), &request));
    communicator().wait_for(request, CollectiveCall::kBroadcast);
    bytes = bytes.subspan(message.size());
  }
}

void CommunicatorWorld::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  BERTHA_MPI_CHECK(MPI_Ibarrier(communicator().get(), &request));
  communicator().wait_for(request, CollectiveCall::kBarrier);
}

void CommunicatorWorld::abort(int exit_code) {
  int ranks = 1;
  if (MPI_Comm_size(MPI_COMM_WORLD, &ranks) == MPI_SUCCESS && ranks > 1) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

std::unique_ptr<World> CommunicatorWorld::make_node_world() {
  return std::make_unique<PartWorld>(communicator(), NodeCommunicator(communicator()));
}

std::unique_ptr<World> CommunicatorWorld::make_peer_world() {
  return std::make_unique<PartWorld>(communicator(),
                                     PartCommunicator(communicator().get(), node_rank()));
}

PartCommunicator::PartCommunicator(MPI_Comm parent, int color) {
  BERTHA_MPI_CHECK(MPI_Comm_split(parent, color, 0, &comm_));
}

PartCommunicator::~PartCommunicator() {
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

NodeCommunicator::NodeCommunicator(const Communicator& parent) {
  MPI_Comm same_host = MPI_COMM_NULL;
  BERTHA_MPI_CHECK(MPI_Comm_split_type(parent.get(), MPI_COMM_TYPE_SHARED, parent.rank(),
                                       MPI_INFO_NULL, &same_host));
  const char* const host_id = std::getenv("NCCL_HOSTID");
  BERTHA_MPI_CHECK(
      MPI_Comm_split(same_host, color_of(host_id == nullptr ? "" : host_id), 0, &comm_));
  BERTHA_MPI_CHECK(MPI_Comm_free(&same_host));
}

}  // namespace bertha
