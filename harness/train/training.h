#pragma once

#include "harness/train/lifecycle.h"
#include "harness/train/run.h"
#include "harness/train/telemetry.h"

namespace bertha {

/// One training run of one rank, from the first log line to the exit code. start.h fills it in,
/// loop.cpp advances it, finish.h ends it; other files use only the part that they need.
struct Training {
  Training(const Config& config, World& world)
      : run{.config = config, .plan = make_run_plan(config), .world = &world} {}
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  /// Closes the pipeline, which all ranks do together, while the watchdog still runs.
  ~Training() { run.pipeline.reset(); }

  Run run;
  Telemetry telemetry = {};
  Lifecycle lifecycle = {};  // last member: the watchdog ends before the objects that it checks
};

// Between steps. All ranks call these together.

/// Reports the pending capture, if there is one. Blocks: the host, until it has arrived.
void finish_capture(Training& training);
/// Captures and reports the steps since the last capture. Blocks: the host.
void capture_now(Training& training, bool is_logged);
/// Evaluates and, with checkpoint.keep_best, saves if no earlier evaluation was as good. Does
/// nothing after a spike from which the run rewinds.
void evaluate_now(Training& training);
/// Saves. Does nothing after such a spike.
void save_now(Training& training);

}  // namespace bertha
