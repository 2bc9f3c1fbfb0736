#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bertha {

/// Capabilities of standard error, read once at the start of a command.
struct Terminal {
  bool redraws = false;  // a terminal, where a line can be redrawn
  bool colors = false;   // NO_COLOR is unset and the terminal supports colors
  int64_t columns = 80;  // COLUMNS, else the terminal's width
};
Terminal detect_terminal();

/// Columns of the screen that shows standard error, at least 80, by COLUMNS or the terminal's
/// present width. None for a file, in which sentences are not broken.
std::optional<int64_t> screen_columns();
/// Columns for lines of a log: screen_columns(), or 160 in a file.
int64_t log_columns();

/// Present columns of the terminal that is standard output; none if it is not a terminal.
std::optional<int64_t> output_columns();

/// Untrusted text, made safe for a terminal: control characters except line ends and tabs are
/// shown as \x1b and the like.
std::string printable(std::string_view text);

}  // namespace bertha
