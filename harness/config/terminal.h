#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bertha {

/// Capabilities of standard error, read once at the start of a command.
struct Terminal {
  bool redraws = false;  // a terminal, where a line can be redrawn
  bool colors = false;   // NO_COLOR is unset and the terminal has them
  int64_t columns = 80;  // COLUMNS, else what the terminal says
};
Terminal detect_terminal();

/// Columns of the screen that shows standard error, at least 80: as COLUMNS or the terminal says
/// now. None in a file, where sentences are not broken.
std::optional<int64_t> screen_columns();
/// Columns for lines of a log: those, or 160 in a file.
int64_t log_columns();

/// Columns of the terminal that is standard output, as it is now; none if it is not a terminal.
std::optional<int64_t> output_columns();

/// Untrusted text, made safe for a terminal: control characters except line ends and tabs are
/// shown as \x1b and the like.
std::string printable(std::string_view text);

}  // namespace bertha
