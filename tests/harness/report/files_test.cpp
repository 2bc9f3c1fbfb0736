#include "harness/report/files.h"
#include "data/files/new_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "data/files/text_file.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/file_size_limit.h"

namespace bertha {
namespace {

TEST(AppendFile, GrowsAcrossOpenings) {
  const TempFolder folder;
  AppendFile(folder.path("f")).append_line("one");
  AppendFile(folder.path("f")).append_line("two");
  EXPECT_EQ(read_text_file(folder.path("f")), "one\ntwo\n");
}

TEST(AppendFile, EndsALineThatAKilledProcessLeftUnfinished) {
  const TempFolder folder;
  write_new_file(folder.path("f"), "one\ntw");
  AppendFile(folder.path("f")).append_line("three");
  EXPECT_EQ(read_text_file(folder.path("f")), "one\ntw\nthree\n");
}

TEST(AppendFile, BytesAreNotLines) {
  const TempFolder folder;
  write_new_file(folder.path("f"), "ab");
  AppendFile(folder.path("f"), AppendFile::Content::kBytes).append(std::string("\0c", 2));
  EXPECT_EQ(read_text_file(folder.path("f")), std::string("ab\0c", 4));
}

TEST(AppendFile, LinesOfTwoWritersNeverMix) {
  const TempFolder folder;
  // Opened anew for every line: one that is being written may look unfinished, and is then followed
  // by an empty line.
  const auto write_lines = [&](char letter) {
    for (int i = 0; i < 500; ++i) {
      AppendFile(folder.path("f")).append_line(std::string(9000, letter));
    }
  };
  std::thread other(write_lines, 'b');
  write_lines('a');
  other.join();
  std::vector<std::string> lines = test::lines_of(folder.path("f"));
  std::erase(lines, "");
  EXPECT_EQ(lines.size(), 1000u);
  for (const std::string& line : lines) {
    EXPECT_TRUE(line == std::string(9000, 'a') || line == std::string(9000, 'b'));
  }
}

TEST(AppendFile, ALockThatAReaderTakesStopsNoWriter) {
  const TempFolder folder;
  AppendFile file(folder.path("f"));
  const int reader = ::open(folder.path("f").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(reader, LOCK_EX), 0);
  file.append_line("one");
  AppendFile(folder.path("f")).append_line("two");
  ::close(reader);
  EXPECT_EQ(read_text_file(folder.path("f")), "one\ntwo\n");
}

TEST(AppendFile, AFileThatIsNoLongerThereOrAnotherOneIsADataError) {
  const TempFolder folder;
  for (const bool replaced : {false, true}) {
    AppendFile file(folder.path("f"));
    file.append_line("kept");
    std::filesystem::remove(folder.path("f"));
    if (replaced) write_new_file(folder.path("f"), "another\n");
    EXPECT_THAT(error_of([&] { file.append_line("lost"); }),
                StartsWith(folder.path("f") + ": was removed or replaced"));
  }
}

TEST(AppendFile, AFullDiskIsADataErrorThatNamesTheFile) {
  AppendFile file("/dev/full");
  EXPECT_THAT(error_of([&] { file.append_line("text"); }),
              HasSubstr("/dev/full: cannot write: No space left"));
}

TEST(AppendFile, ARecordThatFindsNoRoomLeavesNoPartBehind) {
  const TempFolder folder;
  AppendFile file(folder.path("f"));
  file.append_line("one");
  {
    const FileSizeLimit limit(10);
    EXPECT_THROW(file.append_line("a record of many letters"), Error);
  }
  EXPECT_EQ(read_text_file(folder.path("f")), "one\n");
  file.append_line("two");
  EXPECT_EQ(read_text_file(folder.path("f")), "one\ntwo\n");
}

TEST(SteadyClock, BeginsNowAndNeverGoesBack) {
  const int64_t before_ms = now_ms();
  const auto clock = steady_clock_ms();
  int64_t last_ms = clock();
  EXPECT_GE(last_ms, before_ms);
  EXPECT_LT(last_ms, before_ms + 60'000);
  for (int i = 0; i < 100'000; ++i) {
    const int64_t now = clock();
    ASSERT_GE(now, last_ms);
    last_ms = now;
  }
}

TEST(WriteNewFile, ReplacesAtOnceAndLeavesNothingBeside) {
  const TempFolder folder;
  write_new_file(folder.path("f"), "long old text");
  write_new_file(folder.path("f"), "new");
  EXPECT_EQ(read_text_file(folder.path("f")), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.path("f.tmp")));
}

}  // namespace
}  // namespace bertha
