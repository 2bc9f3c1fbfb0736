#include "harness/report/run_lock.h"
#include "data/files/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "harness/report/system_facts.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/error_of.h"

namespace bertha {
namespace {

using testing::HasSubstr;

TEST(RunLock, ASecondHolderIsRefusedWithHostAndProcessOfTheFirst) {
  const TempFolder folder;
  const RunLock first(folder.path());
  EXPECT_THAT(
      error_of([&] { const RunLock second(folder.path(), 0.1); }, ExitCode::kEnvironment),
      testing::AllOf(testing::StartsWith(folder.path() + ": process "),
                     HasSubstr(concat("process ", ::getpid(), " on ", host_name(), " since 2")),
                     HasSubstr("log.run_dir")));
}

TEST(RunLock, IsFreeAtOnceWhenItsHolderIsGone) {
  const TempFolder folder;
  for (int start = 0; start < 3; ++start) {
    RunLock lock(folder.path(), 0);
    const RunLock moved = std::move(lock);
    EXPECT_THROW(RunLock(folder.path(), 0), Error);
  }
  // What stays of a process that was killed is a file, which says nothing about who holds it.
  write_new_file(folder.path("run.lock"), "process 1 on elsewhere since 2020\n");
  EXPECT_NO_THROW(RunLock(folder.path(), 0));
}

TEST(RunLock, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(error_of([&] { const RunLock lock("/proc/nowhere"); }),
              HasSubstr("/proc/nowhere/run.lock"));
}

}  // namespace
}  // namespace bertha
