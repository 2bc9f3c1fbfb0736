#include "harness/report/text_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "kernels/base/plural.h"

namespace bertha {
namespace {

/// Columns of UTF-8 text in a terminal, if every letter is one column wide.
int64_t columns_of(const std::string& text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

constexpr double kLongestDurationSeconds = 1000.0 * 86400.0;

std::string three_digits(double value) {
  const double size = std::fabs(value);
  // The borders apply to the rounded text: 9.995 prints as 10.0, not as 9.99 or 10.00.
  return fixed_text(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string scaled_text(double value) {
  constexpr std::array<const char*, 5> kScales = {"", "k", "M", "G", "T"};
  size_t scale = 0;
  while (std::fabs(value) >= 999.5 && scale + 1 < kScales.size()) {
    value /= 1000.0;
    ++scale;
  }
  const bool whole = scale == 0 && value == std::floor(value);
  return (whole ? fixed_text(value, 0) : three_digits(value)) + kScales[scale];
}

std::string grouped_text(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group_starts = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (group_starts) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted_text(int64_t count, const std::string& noun) {
  return fmt::format("{} {}", grouped_text(count), plural(count, noun));
}

std::string exponent_text(double value) {
  if (!std::isfinite(value)) return fixed_text(value, 0);
  const std::string text = fmt::format("{:.1e}", value);
  const size_t mark = text.find('e') + 1;
  return text.substr(0, mark) + std::to_string(std::atoi(text.c_str() + mark));
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return "?";
  if (seconds > kLongestDurationSeconds) return ">1000d";
  const int64_t total = static_cast<int64_t>(std::llround(seconds));
  const int64_t minutes = total / 60;
  const int64_t hours = minutes / 60;
  if (total < 60) return fmt::format("{}s", total);
  if (minutes < 60) return fmt::format("{}m{:02}s", minutes, total % 60);
  if (hours < 24) return fmt::format("{}h{:02}m", hours, minutes % 60);
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

std::string ms_text(double ms) { return fixed_text(ms, std::fabs(ms) < 9.95 ? 1 : 0); }

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string local_time_text(int64_t time_ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}", fmt::localtime(std::time_t{time_ms / 1000}));
}

std::string wrapped_words(const std::string& text, int64_t columns, int64_t used, int64_t margin) {
  std::string wrapped;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    // "(default 10)" stays together.
    if (std::string value; word == "(default" && words >> value) word += ' ' + value;
    if (!wrapped.empty() && used + 1 + columns_of(word) > columns) {
      wrapped += fmt::format("\n{:{}}", "", margin);
      used = margin;
    } else if (!wrapped.empty()) {
      wrapped += ' ';
      ++used;
    }
    wrapped += word;
    used += columns_of(word);
  }
  return wrapped;
}

namespace {

std::string wrapped_line(const std::string& line, int64_t columns) {
  if (columns_of(line) <= columns) return line;
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  const size_t second = line.find_first_not_of(' ', line.find("  ", first));
  const bool is_table = second <= static_cast<size_t>(columns / 2);
  const std::string start = line.substr(0, is_table ? second : first);
  return start + wrapped_words(line.substr(start.size()), columns, columns_of(start),
                               static_cast<int64_t>(is_table ? second : first + 2));
}

}  // namespace

std::string wrapped_text(const std::string& text, int64_t columns) {
  std::string wrapped;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    wrapped += wrapped_line(text.substr(begin, end - begin), columns);
    if (end < text.size()) wrapped += '\n';
    begin = end + 1;
  }
  return wrapped;
}

std::string aligned_text(const TextTable& table, CellAlignment alignment) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const bool is_right = i > 0 && alignment == CellAlignment::kRight;
      line += is_right ? fmt::format("{:>{}}", row[i], widths[i])
                       : fmt::format("{:<{}}", row[i], widths[i]);
    }
    text += line.erase(line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace bertha
