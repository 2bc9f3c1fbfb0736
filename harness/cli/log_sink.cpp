#include "harness/cli/log_sink.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

namespace bertha {
namespace {

// In the order of LogLevel.
constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                spdlog::level::err};

// A progress line on the terminal is erased first.
std::string line_start(const Terminal& terminal) { return terminal.redraws ? "\r\033[K" : ""; }

}  // namespace

void print_error(const Terminal& terminal, const std::string& what) {
  const std::string line = line_start(terminal) + "bertha: error: " + printable(what) + "\n";
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void start_log_sink(const Terminal& terminal, const World* world, LogLevel least) {
  const auto colors = terminal.colors ? spdlog::color_mode::automatic : spdlog::color_mode::never;
  const auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colors);
  const auto logger = std::make_shared<spdlog::logger>("bertha", sink);
  std::string pattern = line_start(terminal) + "%H:%M:%S ";
  if (world != nullptr && world->rank() > 0) {
    pattern += "[rank " + std::to_string(world->rank()) + "] ";
  }
  logger->set_pattern(pattern + "%^%v%$");
  logger->set_level(kLevels[static_cast<size_t>(least)]);
  logger->flush_on(spdlog::level::debug);
  set_log_sink([logger, terminal](LogLevel level, const std::string& text) {
    if (level == LogLevel::kError) return print_error(terminal, text);
    logger->log(kLevels[static_cast<size_t>(level)], "{}{}",
                level == LogLevel::kWarning ? "warning: " : "", printable(text));
  });
}

}  // namespace bertha
