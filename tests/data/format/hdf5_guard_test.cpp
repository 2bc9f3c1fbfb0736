#include "data/format/hdf5_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// What each test does happens in a process of its own; tests/end_to_end/bad_shards_test.py has
// shards that do it.

constexpr int kData = static_cast<int>(ExitCode::kData);
constexpr int kWentOn = 42;
constexpr const char* kSentence = "a\\?.hdf5: it crashes the HDF5 library or keeps it in a loop";

const std::string& path() {
  static const std::string name = "a\x1b.hdf5";  // which may not steer the terminal
  return name;
}

[[noreturn]] void go_on() {
  try {
    Hdf5Guard::fail_if_broken();
  } catch (const Error& error) {
    std::fprintf(stderr, "code %d, %s", static_cast<int>(error.code), error.what());
    _exit(kWentOn);
  }
  _exit(0);
}

TEST(Hdf5Guard, ACrashComesBackToTheCall) {
  const auto crash = [] {
    sigjmp_buf entry;
    const Hdf5Guard guard(path(), 0, &entry);
    if (sigsetjmp(entry, 1) == 0) raise(SIGSEGV);
    go_on();
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(kWentOn), "code 4, a.\\.hdf5: it crashes");
}

TEST(Hdf5Guard, WithoutAnEntryTheProgramEnds) {
  const auto crash = [] {
    const Hdf5Guard guard(path(), 0, nullptr);
    raise(SIGFPE);
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(kData), kSentence);
}

TEST(Hdf5Guard, AnAllocatorThatAbortsMayKeepItsLock) {
  const auto crash = [] {
    sigjmp_buf entry;
    const Hdf5Guard guard(path(), 0, &entry);
    if (sigsetjmp(entry, 1) == 0) std::abort();
    go_on();
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(kData), kSentence);
}

TEST(Hdf5Guard, ASecondCrashEndsTheProgram) {
  const auto crash = [] {
    sigjmp_buf entry;
    {
      const Hdf5Guard guard(path(), 0, &entry);
      if (sigsetjmp(entry, 1) == 0) raise(SIGSEGV);
    }
    std::thread([] { raise(SIGBUS); }).join();
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(kData), kSentence);
}

TEST(Hdf5Guard, ALoopEndsTheProgram) {
  const auto loop = [] {
    sigjmp_buf entry;
    const Hdf5Guard guard(path(), 0, &entry);
    // Not in the library, but perhaps in the allocator: it is not left from here.
    if (sigsetjmp(entry, 1) != 0) go_on();
    while (std::clock() >= 0) {
    }
  };
  EXPECT_EXIT(loop(), testing::ExitedWithCode(kData), kSentence);
}

TEST(Hdf5Guard, ALargeFileTakesLonger) {
  const auto work = [] {
    const Hdf5Guard guard(path(), int64_t{64} << 20, nullptr);
    while (std::clock() < CLOCKS_PER_SEC / 2) {
    }
    _exit(0);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}

TEST(Hdf5Guard, CrashesElsewhereStayWhatTheyWere) {
  const auto after = [] {
    { const Hdf5Guard guard(path(), 0, nullptr); }
    std::abort();
  };
  EXPECT_EXIT(after(), testing::KilledBySignal(SIGABRT), "");
  const auto in_another_thread = [] {
    const Hdf5Guard guard(path(), 0, nullptr);
    std::thread([] { std::abort(); }).join();
  };
  EXPECT_EXIT(in_another_thread(), testing::KilledBySignal(SIGABRT), "");
}

}  // namespace
}  // namespace bertha
