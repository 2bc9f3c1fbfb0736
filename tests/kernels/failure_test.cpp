#include "kernels/base/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace bertha {
namespace {

template <class Work>
Failure failure_of_work(const Work& work) {
  try {
    work();
  } catch (...) {
    return failure_of(std::current_exception());
  }
  return {ExitCode::kSuccess, ""};
}

TEST(FailureOf, AnErrorIsWhatItSays) {
  const Failure failure = failure_of_work([] { fail(ExitCode::kNumeric, "NaN"); });
  EXPECT_EQ(failure.code, ExitCode::kNumeric);
  EXPECT_EQ(failure.what, "NaN");
}

TEST(FailureOf, APathThatTheSystemRefusesIsADataErrorThatNamesIt) {
  const std::string path = "/tmp/" + std::string(300, 'n');
  const Failure failure = failure_of_work([&] { return std::filesystem::exists(path); });
  EXPECT_EQ(failure.code, ExitCode::kData);
  EXPECT_EQ(failure.what, path + ": File name too long; check the path and its permissions");
}

TEST(FailureOf, AFailedStreamIsADataError) {
  std::ifstream file("/proc/self/mem");
  const Failure failure = failure_of_work([&] { return file.rdbuf()->sgetc(); });
  EXPECT_EQ(failure.code, ExitCode::kData);
}

TEST(FailureOf, ThreadsThatCannotBeStartedAreAnErrorOfTheEnvironment) {
  const Failure failure = failure_of_work([] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(failure.code, ExitCode::kEnvironment);
  EXPECT_NE(failure.what.find("ulimit -u"), std::string::npos);
}

TEST(FailureOf, MemoryThatThereIsNotIsOne) {
  const Failure failure = failure_of_work([] { throw std::bad_alloc(); });
  EXPECT_EQ(failure.code, ExitCode::kMemory);
  EXPECT_EQ(failure.what, "out of host memory");
  EXPECT_EQ(failure_of_work([] { std::vector<int>().reserve(SIZE_MAX / 2); }).code,
            ExitCode::kMemory);
}

TEST(FailureOf, AllElseIsInternal) {
  const Failure failure = failure_of_work([] { throw std::runtime_error("x"); });
  EXPECT_EQ(failure.code, ExitCode::kInternal);
  EXPECT_EQ(failure.what, "unexpected error: x");
}

}  // namespace
}  // namespace bertha
