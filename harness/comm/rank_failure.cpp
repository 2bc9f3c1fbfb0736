#include "harness/comm/rank_failure.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "harness/comm/rank_name.h"
#include "harness/comm/watchdog.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

// Nodes exchange their statuses about once a second.
constexpr std::chrono::milliseconds kNodesHear{1250};
// The node of rank 0 reports a failure on all nodes, so the others wait until they know whether it
// does; after a hang only that node has the status of all ranks. After the loss of a rank, the
// launcher may allow only a second.
constexpr std::chrono::milliseconds kOtherNodesWait{1500};
constexpr std::chrono::milliseconds kOtherNodesWaitAtHang{4000};
constexpr std::chrono::milliseconds kOtherNodesWaitAtLoss{500};
// The reporting rank ends this one; if it cannot, this rank ends the job itself.
constexpr std::chrono::seconds kSilentRanksWait{8};
constexpr std::chrono::milliseconds kPolling{50};

std::chrono::milliseconds wait_of_other_nodes(ExitCode code) {
  if (code == ExitCode::kHang) return kOtherNodesWaitAtHang;
  return code == kLostRank ? kOtherNodesWaitAtLoss : kOtherNodesWait;
}

void sign_off(World& world) {
  RankStatus last = world.board().status(world.board().rank());
  last.ticks = kSignedOff;
  world.board().store(last);
}

/// Waits while relaying statuses to other nodes: this may be the watchdog's thread, whose task that
/// is.
void wait_and_relay(World& world, std::chrono::milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
    try {
      world.relay_status();
    } catch (const Error&) {  // a peer has ended; the original failure is more important
    }
    std::this_thread::sleep_for(kPolling);
  }
}

bool is_signed(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const RankError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Failure failure_of_rank(const std::exception_ptr& exception) {
  Failure failure = failure_of(exception);
  if (failure.code == ExitCode::kMemory) {
    failure.what +=
        "; try a smaller model or train.global_batch_seqs, more train.accumulation_steps, fewer "
        "train.threads_per_rank or another number of ranks; `bertha plan` forecasts the memory";
  }
  return failure;
}

void end_all_ranks(World& world, const std::exception_ptr& exception) {
  const Failure failure = failure_of_rank(exception);
  sign_off(world);
  if (world.claim_failure()) {
    const bool is_first_node = world.rank() == world.node_rank();
    if (!is_first_node) wait_and_relay(world, wait_of_other_nodes(failure.code));
    if (is_first_node || world.board().status(0).ticks >= 0) {
      log_line(LogLevel::kError,
               is_signed(exception) ? failure.what : with_rank_name(world, failure.what));
    }
    if (world.node_size() < world.size()) wait_and_relay(world, kNodesHear);
  } else {
    wait_and_relay(world, kSilentRanksWait);
  }
  world.abort(static_cast<int>(failure.code));
  std::abort();  // never reached: compilers ignore [[noreturn]] of a virtual function
}

}  // namespace bertha
