#include "harness/comm/status_relay.h"

#include <exception>
#include <thread>

#include "harness/comm/mpi_check.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int kToFirst = 0;
constexpr int kFromFirst = 1;
constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::milliseconds kPolling{1};

bool is_done(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return true;
  int done = 0;
  BERTHA_MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

}  // namespace

StatusRelay::StatusRelay(const Communicator& world, const Communicator& node, RankBoard& board)
    : board_(board) {
  const bool is_leader = node.rank() == 0;
  BERTHA_MPI_CHECK(
      MPI_Comm_split(world.get(), is_leader ? 0 : MPI_UNDEFINED, world.rank(), &leaders_));
  node_ranks_.resize(static_cast<size_t>(node.size()));
  const int own = world.rank();
  BERTHA_MPI_CHECK(MPI_Gather(&own, 1, MPI_INT, node_ranks_.data(), 1, MPI_INT, 0, node.get()));
  if (!is_leader) return;
  BERTHA_MPI_CHECK(MPI_Comm_rank(leaders_, &leader_rank_));
  int num_nodes = 0;
  BERTHA_MPI_CHECK(MPI_Comm_size(leaders_, &num_nodes));
  std::vector<int> node_sizes(static_cast<size_t>(num_nodes));
  const int node_size = node.size();
  BERTHA_MPI_CHECK(MPI_Gather(&node_size, 1, MPI_INT, node_sizes.data(), 1, MPI_INT, 0, leaders_));
  if (is_first()) {
    for (int peer = 1; peer < num_nodes; ++peer) {
      peers_.push_back({.rank = peer});
      peers_.back().received.statuses.resize(
          static_cast<size_t>(node_sizes[static_cast<size_t>(peer)]));
      peers_.back().sent.statuses.resize(2);  // rank 0, and all together
    }
  } else {
    peers_.push_back({.rank = 0});
    peers_.back().received.statuses.resize(2);
    peers_.back().sent.statuses.resize(node_ranks_.size());
  }
}

StatusRelay::~StatusRelay() {
  if (!is_leader() || std::uncaught_exceptions() > 0) return;
  try {
    settle();
  } catch (const Error&) {  // no peer reads statuses any more
    return;
  }
  MPI_Comm_free(&leaders_);
}

void StatusRelay::relay() {
  for (Peer& peer : peers_) is_first() ? answer(peer) : ask(peer);
}

void StatusRelay::start_send(Peer& peer) {
  Message& message = peer.sent;
  BERTHA_MPI_CHECK(MPI_Isend(
      message.statuses.data(), static_cast<int>(message.statuses.size() * sizeof(RankStatus)),
      MPI_BYTE, peer.rank, is_first() ? kFromFirst : kToFirst, leaders_, &message.request));
}

void StatusRelay::start_receive(Peer& peer) {
  Message& message = peer.received;
  BERTHA_MPI_CHECK(MPI_Irecv(
      message.statuses.data(), static_cast<int>(message.statuses.size() * sizeof(RankStatus)),
      MPI_BYTE, peer.rank, is_first() ? kToFirst : kFromFirst, leaders_, &message.request));
}

void StatusRelay::answer(Peer& peer) {
  if (!peer.received.is_under_way()) start_receive(peer);
  if (!is_done(peer.sent.request) || !is_done(peer.received.request)) return;
  for (const RankStatus& received : peer.received.statuses) board_.store(received);
  peer.sent.statuses = {board_.status(board_.rank()), board_.all_together()};
  start_send(peer);
  start_receive(peer);
}

void StatusRelay::ask(Peer& peer) {
  if (peer.received.is_under_way()) {
    if (!is_done(peer.received.request)) return;
    for (const RankStatus& received : peer.received.statuses) board_.store(received);
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kInterval || !is_done(peer.sent.request)) return;
  asked_ = now;
  peer.sent.statuses.clear();
  for (const int rank : node_ranks_) peer.sent.statuses.push_back(board_.status(rank));
  start_receive(peer);
  start_send(peer);
}

// Every request gets its reply, so that no message is pending when MPI ends.
void StatusRelay::settle() {
  const auto wait_until = [&](const auto& condition) {
    while (!condition()) {
      for (Peer& peer : peers_) {
        if (is_first()) answer(peer);
      }
      std::this_thread::sleep_for(kPolling);
    }
  };
  if (!is_first()) {
    Peer& first = peers_.front();
    wait_until([&] { return is_done(first.received.request) && is_done(first.sent.request); });
  }
  MPI_Request all_settled = MPI_REQUEST_NULL;
  BERTHA_MPI_CHECK(MPI_Ibarrier(leaders_, &all_settled));
  wait_until([&] { return is_done(all_settled); });
  for (Peer& peer : peers_) {
    BERTHA_MPI_CHECK(MPI_Wait(&peer.sent.request, MPI_STATUS_IGNORE));
    if (!peer.received.is_under_way()) continue;
    BERTHA_MPI_CHECK(MPI_Cancel(&peer.received.request));
    BERTHA_MPI_CHECK(MPI_Wait(&peer.received.request, MPI_STATUS_IGNORE));
  }
}

}  // namespace bertha
