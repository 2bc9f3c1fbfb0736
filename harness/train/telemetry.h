#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/comm/gpu_monitor.h"
#include "harness/report/rank_times.h"
#include "harness/report/run_folder.h"
#include "harness/train/lifecycle.h"
#include "harness/train/probe.h"
#include "harness/train/profiled_steps.h"
#include "harness/train/progress.h"
#include "harness/train/reporter.h"
#include "harness/train/run.h"
#include "harness/train/timers.h"

namespace bertha {

/// What a run measures and writes: log, records, timers, and the scalars that the device sends.
struct Telemetry {
  RunFolder folder = {};             // on rank 0: holds the lock
  std::string resolved_config = {};  // on rank 0: the file of this start
  std::unique_ptr<Reporter> reporter = nullptr;

  // Set from the session on.
  std::unique_ptr<PhaseTimers> timers = nullptr;
  std::unique_ptr<ProfiledSteps> profiled = nullptr;
  std::unique_ptr<StepProbe> probe = nullptr;
  std::unique_ptr<Progress> progress = nullptr;
  std::unique_ptr<GpuMonitor> gpu = nullptr;
  std::unique_ptr<RankWatch> rank_watch = nullptr;
  int64_t peak_memory_bytes = 0;  // of this rank's device, at the records of the log

  int64_t probed_step = 0;       // of the last capture
  int64_t probed_samples = 0;    // trained then
  bool is_probe_logged = false;  // whether the pending capture becomes a record of the log
  int64_t recorded_skips = 0;    // of the last record
};

/// Makes what needs a device: timers, probe, monitor.
void attach(Telemetry& telemetry, const Run& run);

/// The next records begin at the state of the run, which was loaded.
void begin_records(Telemetry& telemetry, const Run& run);

/// Whether the log has a record of the steps up to this one.
bool has_record(const Run& run);
/// Whether the probe is captured after this step: if the step has a record, and otherwise often
/// enough that stop_after_skips skipped updates in a row are seen before as many again have
/// followed. The same on all ranks.
bool is_capture_due(const Telemetry& telemetry, const Run& run);

/// Captures the probe; no earlier capture is pending. All ranks call it.
void capture(Telemetry& telemetry, const Run& run, bool is_logged);

/// Writes what a capture brought: warnings, and its record if it has one.
void write_scalars(Telemetry& telemetry, const Run& run, const StepScalars& scalars,
                   const Findings& findings);

/// Reads how much memory of the device is in use.
void note_memory(Telemetry& telemetry, const Run& run);

}  // namespace bertha
