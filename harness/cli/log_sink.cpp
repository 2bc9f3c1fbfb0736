#include "harness/cli/log_sink.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "harness/report/report.h"

namespace bertha {
namespace {

// In the order of LogLevel.
constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                spdlog::level::err};

// A progress line on the terminal is erased first.
std::string line_start(const Terminal& terminal) { return terminal.redraws ? "\r\033[K" : ""; }

/// Breaks `text` into lines that fit the screen, if there is one. It begins at column `behind`, and
/// so does each further line.
std::string for_screen(const std::string& text, int64_t behind = 0) {
  const std::optional<int64_t> columns = screen_columns();
  if (!columns) return text;
  std::string shown;
  for (const char letter : wrapped_text(text, *columns - behind)) {
    shown += letter;
    if (letter == '\n') shown.append(static_cast<size_t>(behind), ' ');
  }
  return shown;
}

}  // namespace

PrintableOutput::PrintableOutput() : target_(std::cout.rdbuf(this)) {}

PrintableOutput::~PrintableOutput() { std::cout.rdbuf(target_); }

int PrintableOutput::overflow(int letter) {
  const char text = traits_type::to_char_type(letter);
  return xsputn(&text, 1) == 1 ? letter : traits_type::eof();
}

std::streamsize PrintableOutput::xsputn(const char* text, std::streamsize size) {
  const std::string shown = printable(std::string_view(text, static_cast<size_t>(size)));
  const auto shown_size = std::ssize(shown);
  return target_->sputn(shown.data(), shown_size) == shown_size ? size : 0;
}

int PrintableOutput::sync() { return target_->pubsync(); }

void print_table(const TextTable& table) {
  const std::string text = aligned_text(table);
  const std::optional<int64_t> columns = output_columns();
  if (!columns || wrapped_text(text, *columns) == text) {
    std::cout << text;
    return;
  }
  for (size_t row = 1; row < table.size(); ++row) {
    TextTable cells;
    for (size_t i = 1; i < table[row].size(); ++i) {
      cells.push_back({"  " + table.front()[i], table[row][i]});
    }
    print_text(table[row].front() + "\n" + aligned_text(cells));
  }
}

void print_error(const Terminal& terminal, const std::string& what) {
  const std::string line =
      line_start(terminal) + for_screen("bertha: error: " + printable(what)) + "\n";
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void start_log_sink(const Terminal& terminal, const World* world, LogLevel least) {
  const auto colors = terminal.colors ? spdlog::color_mode::automatic : spdlog::color_mode::never;
  const auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colors);
  const auto logger = std::make_shared<spdlog::logger>("bertha", sink);
  const bool is_first = world == nullptr || world->rank() == 0;
  const std::string rank = is_first ? "" : fmt::format("[rank {}] ", world->rank());
  const int64_t behind = std::ssize(std::string_view("12:34:56 ")) + std::ssize(rank);
  logger->set_pattern(line_start(terminal) + "%H:%M:%S " + rank + "%^%v%$");
  logger->set_level(kLevels[static_cast<size_t>(least)]);
  logger->flush_on(spdlog::level::debug);
  set_log_sink([logger, terminal, behind](LogLevel level, const std::string& text) {
    if (level == LogLevel::kError) return print_error(terminal, text);
    const std::string kind = level == LogLevel::kWarning ? "warning: " : "";
    logger->log(kLevels[static_cast<size_t>(level)], "{}",
                for_screen(kind + printable(text), behind));
  });
}

}  // namespace bertha
