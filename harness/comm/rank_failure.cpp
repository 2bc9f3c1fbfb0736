#include "harness/comm/rank_failure.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "harness/comm/rank_name.h"
#include "kernels/base/failure.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

// A failure on all nodes at once is reported by the node of rank 0; at a hang it alone knows the
// status of all ranks.
constexpr std::chrono::milliseconds kOtherNodesWait{500};
constexpr std::chrono::milliseconds kOtherNodesWaitAtHang{4000};
// The rank that reports ends this one; if it cannot, this rank ends the job itself.
constexpr std::chrono::seconds kSilentRanksWait{8};

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

void end_all_ranks(World& world, const std::exception_ptr& exception) {
  const Failure failure = failure_of(exception);
  if (world.claim_failure()) {
    if (world.rank() != world.node_rank()) {
      std::this_thread::sleep_for(failure.code == ExitCode::kHang ? kOtherNodesWaitAtHang
                                                                  : kOtherNodesWait);
    }
    log_line(LogLevel::kError,
             is_signed(exception) ? failure.what : signed_sentence(world, failure.what));
  } else {
    std::this_thread::sleep_for(kSilentRanksWait);
  }
  world.abort(static_cast<int>(failure.code));
  std::abort();  // never reached: compilers forget [[noreturn]] behind a virtual call
}

}  // namespace bertha
