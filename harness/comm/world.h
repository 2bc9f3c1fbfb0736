#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/pipeline/transport.h"
#include "harness/comm/binding.h"
#include "harness/comm/rank_board.h"
#include "kernels/collectives.h"

namespace bertha {

/// The ranks of this run. Made once at the start of the program, before any thread, and destroyed
/// last: what it makes must be gone before. Its end waits for all ranks, unless an exception
/// unwinds; then the process should end at once (see rank_failure.h).
///
/// Threads   one thread at a time; abort(), claim_failure(), board() and relay_status()
///           from any.
/// Errors    Error(kEnvironment) when the launcher's environment and MPI disagree (for example
///           SLURM_NTASKS=8 but a world of 1), or MPI lacks thread support.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int node_rank() const = 0;  // among the ranks of this node
  virtual int node_size() const = 0;

  /// Where this process was bound before MPI started.
  const CoreBinding& binding() const { return binding_; }

  /// Host collectives for the data pipeline, on a communicator of their own. Each call makes one.
  virtual std::unique_ptr<Transport> make_transport() = 0;
  /// CPU twin of NCCL, over MPI, on host memory.
  virtual std::unique_ptr<Collectives> make_host_collectives(Device& device) = 0;

  /// The largest value over ranks: agreement on signals, time limits and exit codes.
  virtual int agree_max(int value) = 0;
  /// Sends the bytes of rank `root` to all ranks: any number, the same on each.
  virtual void broadcast_bytes(std::span<std::byte> bytes, int root) = 0;
  /// The text of rank `root`, on all ranks.
  std::string broadcast(const std::string& text, int root);
  /// What every rank says, in rank order. All ranks call it.
  std::vector<std::string> gather_texts(const std::string& mine);
  virtual void barrier() = 0;

  // Parts of this world, in its order, on its board. All ranks make and end them together, while
  // this one lives.
  virtual std::unique_ptr<World> make_node_world() = 0;  // the ranks of this node
  virtual std::unique_ptr<World> make_peer_world() = 0;  // one of each node: equal in node_rank()

  /// True for the first caller among the ranks of this node: the one that reports a failure which
  /// several ranks have at the same time.
  virtual bool claim_failure() { return true; }

  /// The status of the ranks, for the watchdog: of this node, and of other nodes as received.
  virtual RankBoard& board() { return own_board_; }
  /// Sends and receives statuses where they are due, unless another thread does; does not block.
  virtual void relay_status() {}

  /// Ends every rank at once with this exit code, after this rank's message. Never returns.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  CoreBinding binding_;

 private:
  RankBoard own_board_;
};

/// Binds the process to its cores, near the GPU that it takes of those given (see bind_process()),
/// starts MPI (or a world of one when nothing launched us) and splits off the node.
std::unique_ptr<World> make_world(const std::vector<std::string>& gpu_bus_ids = {});

}  // namespace bertha
