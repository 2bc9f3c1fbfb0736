#include "harness/config/terminal.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace bertha {
namespace {

TEST(Printable, ShowsControlCharactersThatWouldSteerATerminal) {
  EXPECT_EQ(printable("\x1b[31mred\x1b]0;title\a"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable(std::string("a\0b\r\x7f", 5)), "a\\x00b\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");
}

TEST(Printable, LeavesTextAsItIs) {
  const std::string text = "two\n\tlines, n\u00e4me \u20ac \u00a0";
  EXPECT_EQ(printable(text), text);
}

TEST(LogColumns, FollowColumnsFrom80Upward) {
  setenv("COLUMNS", "133", 1);
  EXPECT_EQ(log_columns(), 133);
  setenv("COLUMNS", "40", 1);
  EXPECT_EQ(log_columns(), 80);
  unsetenv("COLUMNS");
}

TEST(OutputSize, IsNoneThatNoTerminalHas) {
  if (output_size().is_terminal) GTEST_SKIP() << "a terminal says its size itself";
  setenv("LINES", "50", 1);
  EXPECT_EQ(output_size().rows, 50);
  for (const char* size : {"999999999", "99999999999999999999", "-3", "12x", ""}) {
    setenv("COLUMNS", size, 1);
    setenv("LINES", size, 1);
    EXPECT_EQ(output_size().columns, 80) << size;
    EXPECT_EQ(output_size().rows, 24) << size;
    EXPECT_LE(detect_terminal().columns, 10'000) << size;
  }
  unsetenv("COLUMNS");
  unsetenv("LINES");
}

}  // namespace
}  // namespace bertha
