#include "harness/cli/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "harness/report/text_format.h"

namespace bertha {
namespace {

std::atomic<bool> shown = true;

constexpr double kRedrawSeconds = 0.1;
constexpr double kFirstLineSeconds = 2;
constexpr double kIntervalGrowth = 1.5;  // the next line at 1.5 times the elapsed time

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void write_to_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string progress_text(const ProgressView& view, int64_t columns) {
  const auto amount = [](int64_t value) { return scaled_text(static_cast<double>(value)); };
  std::string line = view.label + " ";
  if (view.total > 0) {
    const int64_t percent = 100 * std::min(view.done, view.total) / view.total;
    line += fmt::format("{:>3}% {}/{}", percent, amount(view.done), amount(view.total));
  } else {
    line += amount(view.done);
  }
  line += " " + view.unit;
  if (view.elapsed_seconds > 0 && view.done > 0) {
    const double rate = static_cast<double>(view.done) / view.elapsed_seconds;
    line += " " + scaled_text(rate) + "/s";
    if (view.total > 0) {
      const auto left = static_cast<double>(std::max<int64_t>(view.total - view.done, 0));
      line += " ETA " + duration_text(left / rate);
    }
  }
  if (static_cast<int64_t>(line.size()) > columns) {
    line.resize(static_cast<size_t>(std::max<int64_t>(columns, 0)));
  }
  return line;
}

void show_progress_lines(bool wanted) { shown = wanted; }

ProgressLine::ProgressLine(Options options) : options_(std::move(options)) {
  if (!options_.write) options_.write = write_to_stderr;
  if (!options_.clock) options_.clock = steady_seconds;
  start_seconds_ = options_.clock();
  next_seconds_ = options_.terminal.redraws ? kRedrawSeconds : kFirstLineSeconds;
}

ProgressLine::~ProgressLine() {
  if (line_open_) options_.write("\n");
}

void ProgressLine::update(int64_t done, int64_t total) {
  if (!shown) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const double elapsed = options_.clock() - start_seconds_;
  const bool finished = total > 0 && done >= total;
  // The last state is always shown on a terminal, but in a log only if lines were shown before.
  const bool last = finished && line_open_;
  if (elapsed < next_seconds_ && !last) return;
  const ProgressView view{.label = options_.label,
                          .unit = options_.unit,
                          .done = done,
                          .total = total,
                          .elapsed_seconds = elapsed};
  if (options_.terminal.redraws) {
    // One column stays empty: some terminals wrap when the last one is written.
    options_.write("\r\033[K" + progress_text(view, options_.terminal.columns - 1));
    line_open_ = true;
  } else {
    options_.write(progress_text(view, 200) + "\n");
  }
  next_seconds_ = options_.terminal.redraws ? elapsed + kRedrawSeconds : elapsed * kIntervalGrowth;
}

WorkProgress progress_lines(const Terminal& terminal) {
  struct Lines {
    std::mutex mutex;
    std::string phase;
    std::optional<ProgressLine> line;
  };
  const auto lines = std::make_shared<Lines>();
  return [lines, terminal](const std::string& phase, const std::string& unit, int64_t done,
                           int64_t total) {
    const std::lock_guard lock(lines->mutex);
    if (!lines->line || phase != lines->phase) {
      lines->phase = phase;
      lines->line.reset();  // ends the old line before the new one starts
      lines->line.emplace(
          ProgressLine::Options{.label = phase, .unit = unit, .terminal = terminal});
    }
    lines->line->update(done, total);
  };
}

}  // namespace bertha
