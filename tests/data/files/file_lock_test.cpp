#include "data/files/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "data/files/new_file.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

FileLock::Request in(const std::string& folder, double patience_seconds = 0) {
  return {.folder = folder,
          .name = "run.lock",
          .doing = "is training in this folder",
          .advice = "choose another folder with log.run_dir",
          .patience_seconds = patience_seconds};
}

std::string refusal(const FileLock::Request& request) {
  return error_of([&] { FileLock{request}; }, ExitCode::kEnvironment);
}

TEST(FileLock, ASecondHolderIsRefusedWithHostAndProcessOfTheFirst) {
  const TempFolder folder;
  const FileLock first(in(folder.path()));
  EXPECT_THAT(refusal(in(folder.path(), 0.1)),
              AllOf(StartsWith(folder.path() + ": process "),
                    HasSubstr(concat("process ", ::getpid(), " on ")), HasSubstr(" since 2"),
                    HasSubstr(" is training in this folder; "), HasSubstr("log.run_dir")));
}

TEST(FileLock, IsFreeAtOnceWhenItsHolderIsGone) {
  const TempFolder folder;
  for (int start = 0; start < 3; ++start) {
    FileLock lock(in(folder.path()));
    const FileLock moved = std::move(lock);
    EXPECT_THROW(FileLock(in(folder.path())), Error);
  }
  // What a killed process leaves is a file, which does not lock anything.
  write_new_file(folder.path("run.lock"), "process 1 on elsewhere since 2020\n");
  EXPECT_NO_THROW(FileLock(in(folder.path())));
}

TEST(FileLock, OnlyTheOwnerCanOpenTheFile) {
  const TempFolder folder;
  std::ofstream(folder.path("run.lock")) << "made by an earlier version";
  fs::permissions(folder.path("run.lock"), fs::perms(0644));
  const FileLock lock(in(folder.path()));
  EXPECT_EQ(fs::status(folder.path("run.lock")).permissions(), fs::perms(0600));
}

TEST(FileLock, AProcessThatHasEndedIsNotSaidToHoldTheLock) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(in(folder.path()));
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const int other = ::open(folder.path("run.lock").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(other, LOCK_SH), 0);
  EXPECT_THAT(refusal(in(folder.path())),
              AllOf(HasSubstr(concat("process ", child, " on ")), HasSubstr("has ended"),
                    HasSubstr("fuser " + folder.path("run.lock")), Not(HasSubstr("is training"))));
  ::close(other);
}

TEST(FileLock, ARemovedFileIsLockedByOneProcessOnly) {
  const TempFolder folder;
  FileLock::Request request = in(folder.path(), 1);
  request.removes_file = true;
  {
    const FileLock lock(request);
    EXPECT_TRUE(fs::exists(folder.path("run.lock")));
  }
  EXPECT_FALSE(fs::exists(folder.path("run.lock")));
  // A file that was opened before its holder removed it locks nothing for those who come later.
  const int removed = ::open(folder.path("run.lock").c_str(), O_RDWR | O_CREAT, 0600);
  fs::remove(folder.path("run.lock"));
  ASSERT_EQ(::flock(removed, LOCK_EX), 0);
  EXPECT_NO_THROW(FileLock{request});
  ::close(removed);
}

TEST(FileLock, AFolderThatCannotBeWrittenAndALinkAreNamed) {
  EXPECT_THAT(error_of([&] { FileLock{in("/proc/nowhere")}; }),
              HasSubstr("/proc/nowhere/run.lock: cannot open for writing"));
  const TempFolder folder;
  fs::create_symlink(folder.path("other"), folder.path("run.lock"));
  EXPECT_THAT(error_of([&] { FileLock{in(folder.path())}; }), HasSubstr("is a link"));
  EXPECT_FALSE(fs::exists(folder.path("other")));
}

}  // namespace
}  // namespace bertha
