// A GoogleTest main over MPI. Rank 0 prints as usual, the others only their failures.

#include "tests/support/mpi_main.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <memory>

namespace bertha::testing {
namespace {

World* current_world = nullptr;

/// Prints what fails on the other ranks. A test that stops half way leaves its peers waiting in a
/// collective, so that its failure ends the program.
class FailureListener final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailureListener(World& world) : world_(world) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    if (world_.rank() != 0) {
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", world_.rank(),
                   result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                   result.message());
    }
    if (result.fatally_failed() && world_.size() > 1) world_.abort(1);
  }

 private:
  World& world_;
};

int run_tests(World& world) {
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureListener(world));
  const int failed = RUN_ALL_TESTS() != 0 ? 1 : 0;
  const int failed_anywhere = world.agree_max(failed);
  if (world.rank() == 0 && failed == 0 && failed_anywhere != 0) {
    std::fprintf(stderr, "[  FAILED  ] on another rank, see above\n");
  }
  return failed_anywhere;
}

}  // namespace

World& world() { return *current_world; }

}  // namespace bertha::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const std::unique_ptr<bertha::World> world = bertha::make_world();
    bertha::testing::current_world = world.get();
    return bertha::testing::run_tests(*world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
