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
  if (output_columns()) GTEST_SKIP() << "a terminal says its size itself";
  for (const char* size : {"999999999", "99999999999999999999", "-3", "12x", ""}) {
    setenv("COLUMNS", size, 1);
    EXPECT_EQ(output_columns(), std::nullopt) << size;
    EXPECT_LE(detect_terminal().columns, 10'000) << size;
  }
  unsetenv("COLUMNS");
}

}  // namespace
}  // namespace bertha
