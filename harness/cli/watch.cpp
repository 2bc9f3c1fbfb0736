#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/comm/watchdog.h"
#include "harness/mlperf/curve_doctor.h"
#include "harness/report/files.h"
#include "harness/report/metrics.h"
#include "harness/report/run_lock.h"
#include "harness/report/watch_frame.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct WatchOptions {
  std::string run = "runs/latest";
  bool once = false;
  double every_seconds = 2;
};

/// Where a run stands: still going on, or ended with a code.
struct RunState {
  std::string text;
  bool goes_on = false;
  int exit_code = 0;
};

std::string ending(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kSuccess:
      return "ended as planned";
    case ExitCode::kTargetMissed:
      return "ended without reaching the target";
    case ExitCode::kRequeue:
      return "saved and stopped; the same command goes on";
    case ExitCode::kNumeric:
      return "stopped: its numbers were not finite";
    default:
      return concat("stopped with exit code ", exit_code);
  }
}

/// is_held: whether a process held the run's folder before its metrics were read. A file system
/// without locks does not tell: then the run is taken at its word.
RunState state_of(const Metrics& metrics, std::optional<bool> is_held) {
  if (is_held.value_or(!metrics.stop)) return {.text = "running", .goes_on = true};
  if (metrics.stop) {
    const auto without_code =
        metrics.stop->status == "success" ? ExitCode::kSuccess : ExitCode::kTargetMissed;
    const int code = metrics.stop->exit_code.value_or(static_cast<int>(without_code));
    return {.text = ending(code), .exit_code = code};
  }
  return {.text = "its process ended without recording why; see logs/ in its folder",
          .exit_code = static_cast<int>(kLostRank)};
}

class Watch {
 public:
  explicit Watch(const WatchOptions& options)
      : options_(options), metrics_((fs::path(options.run) / "metrics.jsonl").string()) {}

  int run() {
    for (;;) {
      const OutputSize size = output_size();
      // In this order: a run that ends meanwhile has written its last record.
      const std::optional<bool> is_held = is_locked(options_.run);
      const Metrics& metrics = metrics_.look();
      const RunState state = state_of(metrics, is_held);
      WatchView view{.run_dir = options_.run,
                     .state = state.text,
                     .goes_on = state.goes_on,
                     .columns = size.columns,
                     .rows = size.rows - 1,
                     .now_ms = now_ms()};
      for (const CurveRemark& remark : examine_curve(metrics)) {
        view.alarms.push_back(remark.shape + ": " + remark.text);
      }
      const bool redraws = size.is_terminal && !options_.once;
      show(printable(watch_frame(metrics, view)), size, redraws);
      if (!redraws || !state.goes_on) return state.exit_code;
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.every_seconds));
    }
  }

 private:
  void show(const std::string& frame, const OutputSize& size, bool redraws) {
    std::string text;
    if (redraws && size.columns != columns_) {
      text = "\033[2J\033[H";  // lines of another width have been wrapped
    } else if (redraws) {
      text = concat("\033[", lines_, "A");
    }
    lines_ = 0;
    for (const char letter : frame) {
      if (redraws && lines_ == size.rows - 1) break;  // more would scroll the first lines away
      lines_ += letter == '\n' ? 1 : 0;
      text += letter == '\n' && redraws ? "\033[K\n" : std::string(1, letter);
    }
    if (redraws) text += "\033[J";
    std::fwrite(text.data(), 1, text.size(), stdout);  // std::cout would show the escapes
    std::fflush(stdout);
    columns_ = size.columns;
  }

  WatchOptions options_;
  MetricsFollower metrics_;
  int64_t columns_ = 0;
  int64_t lines_ = 0;  // of the frame before
};

}  // namespace

void add_watch_command(CLI::App& program, Chosen& chosen) {
  CLI::App& watch = add_command(
      program, chosen,
      {.name = "watch",
       .description =
           "Shows a run in the terminal while it trains, from the files in its folder: curves, "
           "speed, ranks, alarms, the last evaluation and the time left. Ends with the run, with "
           "its exit code; 137 when its process is gone, 0 while it runs. Ctrl-C ends only the "
           "view. In a pipe it prints one frame.",
       .examples = {"bertha watch", "bertha watch runs/quickstart",
                    "bertha watch runs/quickstart --once", "ssh -t login bertha watch /runs/a"}});
  const auto options = std::make_shared<WatchOptions>();
  add_text(watch, "run", options->run, "DIR", "Run folder (default runs/latest)");
  add_flag(watch, "--once", options->once, "Print one frame and exit");
  add_number(watch, "--every", options->every_seconds, "Seconds between frames (default {})",
             kAboveZero);
  set_action(watch, chosen, [options](CommandContext&) { return Watch(*options).run(); });
}

}  // namespace bertha
