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

/// The measurements and reports of a run: log, records, timers, and the device's scalars.
struct Telemetry {
  RunFolder folder = {};             // on rank 0: owns the lock
  std::string resolved_config = {};  // on rank 0: this start's file
  std::unique_ptr<Reporter> reporter = nullptr;

  // Set from the session on.
  std::unique_ptr<PhaseTimers> timers = nullptr;
  std::unique_ptr<ProfiledSteps> profiled = nullptr;
  std::unique_ptr<StepProbe> probe = nullptr;
  std::unique_ptr<Progress> progress = nullptr;
  std::unique_ptr<GpuMonitor> gpu = nullptr;
  std::unique_ptr<RankWatch> rank_watch = nullptr;
  int64_t peak_memory_bytes = 0;  // this rank's device, sampled at log records

  int64_t probed_step = 0;       // step of the last capture
  int64_t probed_samples = 0;    // sequences trained at that step
  bool is_probe_logged = false;  // whether the pending capture becomes a log record
  int64_t recorded_skips = 0;    // skipped updates in the last record
};

/// Creates the parts that need a device: timers, probe, monitor.
void attach(Telemetry& telemetry, const Run& run);

/// Makes the next records begin at the run's loaded state.
void begin_records(Telemetry& telemetry, const Run& run);

/// Whether the log has a record of the steps up to this one.
bool has_record(const Run& run);
/// Whether the probe is captured after this step: if the step has a record, and otherwise often
/// enough that stop_after_skips consecutive skipped updates are detected before as many more
/// follow. The same on all ranks.
bool is_capture_due(const Telemetry& telemetry, const Run& run);

/// Captures the probe. Needs: no earlier capture is pending. All ranks call it.
void capture(Telemetry& telemetry, const Run& run, bool is_logged);

/// Writes the warnings of a capture, and its record if it has one.
void write_scalars(Telemetry& telemetry, const Run& run, const StepScalars& scalars,
                   const Findings& findings);

/// Reads the device memory in use.
void note_memory(Telemetry& telemetry, const Run& run);

}  // namespace bertha
