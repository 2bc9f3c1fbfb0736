// What rank_failure_test.py starts under mpirun: ranks that throw, hang or die as told.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "harness/comm/rank_failure.h"
#include "harness/comm/watchdog.h"
#include "harness/comm/world.h"
#include "kernels/base/failure.h"

namespace bertha {
namespace {

void ignore_signal(int) {}

}  // namespace

// Its name is to be seen in the stack.
[[noreturn, gnu::noinline]] void spin_for_ever() {
  for (;;) asm volatile("");
}

namespace {

/// The last rank fails as told; the others wait for it in a collective call.
int fail_as_told(World& world, const std::string& how) {
  // As in training, where SIGTERM only asks for a checkpoint.
  std::signal(SIGTERM, ignore_signal);
  const bool chosen = world.rank() == world.size() - 1;
  const auto watchdog = make_watchdog(world, how == "slow" || how == "spin" ? 2.0 : 0.0);
  watchdog->set_check([=] {
    if (chosen && how == "lost-peer") fail(ExitCode::kEnvironment, "communication: peer lost");
  });
  world.board().enter(7, RunPhase::kTrain);
  world.barrier();
  if (how == "all-throw") fail(ExitCode::kData, "shard 3 is torn; prepare it again");
  if (chosen && how == "throw") fail(ExitCode::kData, "shard 3 is torn; prepare it again");
  if (chosen && how == "bad-alloc") throw std::bad_alloc();
  if (chosen && how == "logic-error") throw std::logic_error("impossible");
  if (chosen && (how == "lost-peer" || how == "slow")) {
    for (;;) pause();  // as a rank that waits for its device or disk
  }
  if (chosen && how == "spin") spin_for_ever();
  if (how == "exit-3") return world.agree_max(chosen ? 3 : 0);
  world.barrier();
  return 0;
}

}  // namespace
}  // namespace bertha

int main(int argc, char** argv) {
  std::unique_ptr<bertha::World> world;
  std::exception_ptr exception;
  try {
    world = bertha::make_world();
    return bertha::fail_as_told(*world, argc > 1 ? argv[1] : "nothing");
  } catch (...) {
    exception = std::current_exception();
  }
  if (world != nullptr && world->size() > 1) bertha::end_all_ranks(*world, exception);
  const bertha::Failure failure = bertha::failure_of(exception);
  std::fprintf(stderr, "error: %s\n", failure.what.c_str());
  return static_cast<int>(failure.code);
}
