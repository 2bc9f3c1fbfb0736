#include "harness/comm/rank_failure.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "kernels/base/failure.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

// A failure that all nodes meet at once is left to the node of rank 0 to report.
constexpr std::chrono::milliseconds kOtherNodesWait{500};
// The rank that reports ends this one; if it cannot, this rank ends the job itself.
constexpr std::chrono::seconds kSilentRanksWait{3};

}  // namespace

std::string rank_name(const World& world) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  if (world.size() == 1) return host.data();
  return concat("rank ", world.rank(), " of ", world.size(), " on ", host.data());
}

void end_all_ranks(World& world, ExitCode code, const std::string& message) {
  if (world.claim_failure()) {
    if (world.rank() != world.node_rank()) std::this_thread::sleep_for(kOtherNodesWait);
    log_line(LogLevel::kError,
             world.size() == 1 ? message : concat(message, " (", rank_name(world), ")"));
  } else {
    std::this_thread::sleep_for(kSilentRanksWait);
  }
  world.abort(static_cast<int>(code));
  std::abort();  // never reached: compilers forget [[noreturn]] behind a virtual call
}

int run_rank(World& world, const std::function<int()>& work) {
  Failure failure;
  try {
    return work();
  } catch (...) {
    failure = failure_of(std::current_exception());
  }
  if (world.size() > 1) end_all_ranks(world, failure.code, failure.what);
  log_line(LogLevel::kError, failure.what);
  return static_cast<int>(failure.code);
}

}  // namespace bertha
