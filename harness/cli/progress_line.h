#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "data/files/for_each_parallel.h"
#include "harness/config/terminal.h"

namespace bertha {

/// What a progress line shows.
struct ProgressView {
  std::string label;  // "prepare"
  std::string unit;   // "documents", "bytes"
  int64_t done = 0;
  int64_t total = 0;  // 0 = unknown
  double elapsed_seconds = 0;
};

/// "prepare  37% 1.26k/3.40k documents 8.30k/s ETA 3m31s", cut to `columns`.
std::string progress_text(const ProgressView& view, int64_t columns);

/// Whether this process shows progress lines from now on; not with -q.
void show_progress_lines(bool wanted);

/// Progress of long work on standard error: one redrawn line on a terminal, otherwise plain
/// lines at growing intervals, about ten in an hour's log.
///
/// Threads   update() from any.
class ProgressLine {
 public:
  using Write = std::function<void(const std::string&)>;
  using Clock = std::function<double()>;  // seconds

  struct Options {
    std::string label;
    std::string unit;
    Terminal terminal;
    Write write = {};  // empty: standard error
    Clock clock = {};  // empty: the steady clock
  };

  explicit ProgressLine(Options options);
  /// Ends the line of a terminal, so that later output starts a new one.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(int64_t done, int64_t total);

 private:
  Options options_;
  std::mutex mutex_;
  double start_seconds_ = 0;
  double next_seconds_ = 0;  // since the start
  bool line_open_ = false;
};

/// A progress line for each phase; ends when the next phase begins or the function is destroyed.
///
/// Threads   may be called from any.
WorkProgress progress_lines(const Terminal& terminal);

}  // namespace bertha
