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

/// The ranks of this run. Created once at the start of the program, before any thread, and
/// destroyed last, after all objects that it created. Destruction waits for all ranks, unless an
/// exception unwinds; the process should then end immediately (see rank_failure.h).
///
/// Threads   one thread at a time; abort(), claim_failure(), board() and relay_status()
///           from any.
/// Errors    Error(kEnvironment) if the launcher's environment and MPI disagree (for example
///           SLURM_NTASKS=8 but a world of 1), or MPI lacks thread support.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int node_rank() const = 0;  // among the ranks of this node
  virtual int node_size() const = 0;

  /// The binding of this process before MPI started.
  const CoreBinding& binding() const { return binding_; }

  /// Host collectives for the data pipeline. Each call creates a communicator.
  virtual std::unique_ptr<Transport> make_transport() = 0;
  /// CPU twin of NCCL, over MPI, on host memory.
  virtual std::unique_ptr<Collectives> make_host_collectives(Device& device) = 0;

  /// The largest value over ranks: agreement on signals, time limits and exit codes.
  virtual int agree_max(int value) = 0;
  /// Sends the bytes of rank `root` to all ranks: any number, the same on each.
  virtual void broadcast_bytes(std::span<std::byte> bytes, int root) = 0;
  /// Returns the text of rank `root` on all ranks.
  std::string broadcast(const std::string& text, int root);
  /// The bytes of every rank, in rank order. All ranks call it.
  std::vector<std::string> gather_texts(const std::string& mine);
  virtual void barrier() = 0;

  // Parts of this world, in its order, with its board. All ranks create and destroy them together,
  // within its lifetime.
  virtual std::unique_ptr<World> make_node_world() = 0;  // the ranks of this node
  virtual std::unique_ptr<World> make_peer_world() = 0;  // one rank per node, with one node_rank()

  /// True for the first caller among the ranks of this node, which reports a failure that several
  /// ranks have at the same time.
  virtual bool claim_failure() { return true; }

  /// The status of the ranks, for the watchdog: this node's, and other nodes' as received.
  virtual RankBoard& board() { return own_board_; }
  /// Sends and receives pending statuses, unless another thread does; does not block.
  virtual void relay_status() {}

  /// Ends every rank immediately with this exit code, after this rank's message. Never returns.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  CoreBinding binding_;

 private:
  RankBoard own_board_;
};

/// Binds the process to its cores, near its GPU among those given (see bind_process()), starts MPI
/// (or a world of one rank if no launcher started it) and splits off the node.
std::unique_ptr<World> make_world(const std::vector<std::string>& gpu_bus_ids = {});

}  // namespace bertha
