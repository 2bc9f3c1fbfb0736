#include "data/format/hdf5_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// What each test does happens in a process of its own; tests/end_to_end/bad_shards_test.py has
// shards that do it.

constexpr int kData = static_cast<int>(ExitCode::kData);
constexpr const char* kSentence = "a\\?.hdf5: it crashes the HDF5 library or keeps it in a loop";

const std::string& path() {
  static const std::string name = "a\x1b.hdf5";  // which may not steer the terminal
  return name;
}

void use_processor(double seconds) {
  const std::clock_t end = std::clock() + static_cast<std::clock_t>(seconds * CLOCKS_PER_SEC);
  while (std::clock() < end) {
  }
}

TEST(Hdf5Guard, ACrashEndsTheProgram) {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    const auto crash = [&] {
      const Hdf5Guard guard(path(), 0);
      raise(number);
    };
    EXPECT_EXIT(crash(), testing::ExitedWithCode(kData), kSentence);
  }
}

TEST(Hdf5Guard, ALoopEndsTheProgram) {
  const auto loop = [] {
    const Hdf5Guard guard(path(), 0);
    use_processor(60);
  };
  EXPECT_EXIT(loop(), testing::ExitedWithCode(kData), kSentence);
}

TEST(Hdf5Guard, ALargeFileTakesLonger) {
  const auto work = [] {
    const Hdf5Guard guard(path(), int64_t{64} << 20);
    use_processor(2);
    _exit(0);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}

TEST(Hdf5Guard, CrashesElsewhereStayWhatTheyWere) {
  const auto after = [] {
    { const Hdf5Guard guard(path(), 0); }
    std::abort();
  };
  EXPECT_EXIT(after(), testing::KilledBySignal(SIGABRT), "");
  const auto in_another_thread = [] {
    const Hdf5Guard guard(path(), 0);
    std::thread([] { std::abort(); }).join();
  };
  EXPECT_EXIT(in_another_thread(), testing::KilledBySignal(SIGABRT), "");
  const auto at_the_limit_of_the_process = [] {
    const Hdf5Guard guard(path(), 0);
    raise(SIGXCPU);
  };
  EXPECT_EXIT(at_the_limit_of_the_process(), testing::KilledBySignal(SIGXCPU), "");
}

}  // namespace
}  // namespace bertha
