#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bertha {

/// How standard error can be written to. Read once at the start of a command.
struct Terminal {
  bool redraws = false;  // a terminal that can take a line back
  bool colors = false;   // NO_COLOR is unset and the terminal has them
  int64_t columns = 80;  // COLUMNS, else what the terminal says
};
Terminal detect_terminal();

/// Text that may come from a file of somebody else, fit for a terminal: control characters but line
/// ends and tabs are shown as \x1b and the like, so that they cannot steer it.
std::string printable(std::string_view text);

}  // namespace bertha
