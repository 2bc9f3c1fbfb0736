#include "harness/config/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/base/parse_number.h"

namespace bertha {
namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Columns that a variable states; 0 if it states none, or more than a terminal has.
int64_t exported_size(const char* variable) {
  constexpr int64_t kMost = 10'000;
  const int64_t size = parse_number<int64_t>(environment(variable)).value_or(0);
  return size > 0 && size <= kMost ? size : 0;
}

}  // namespace

Terminal detect_terminal() {
  Terminal terminal;
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  terminal.redraws = is_terminal && environment("TERM") != "dumb";
  terminal.colors = terminal.redraws && environment("NO_COLOR").empty();
  const int64_t columns = exported_size("COLUMNS");
  winsize size{};
  if (columns > 0) {
    terminal.columns = columns;
  } else if (is_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  }
  return terminal;
}

std::optional<int64_t> screen_columns() {
  constexpr int64_t kLeast = 80;
  if (isatty(STDERR_FILENO) != 1 && exported_size("COLUMNS") == 0) return std::nullopt;
  return std::max(detect_terminal().columns, kLeast);
}

int64_t log_columns() {
  constexpr int64_t kInFiles = 160;
  return screen_columns().value_or(kInFiles);
}

std::optional<int64_t> output_columns() {
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  // A shell exports its size once; after a resize only the terminal has the right one.
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int64_t exported = exported_size("COLUMNS");
  return exported > 0 ? exported : 80;
}

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters too: 0xc2 and that byte in UTF-8.
    const bool second_of_c1 = i > 0 && text[i - 1] == '\xc2' && byte >= 0x80 && byte < 0xa0;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    if (second_of_c1) shown.pop_back();
    if (control || second_of_c1) {
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace bertha
