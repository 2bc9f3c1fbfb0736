#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "harness/comm/energy_meter.h"
#include "harness/comm/gpu_monitor.h"
#include "harness/comm/watchdog.h"
#include "harness/config/run_plan.h"
#include "harness/report/rank_times.h"
#include "harness/report/run_folder.h"
#include "harness/train/evaluate.h"
#include "harness/train/probe.h"
#include "harness/train/profiled_steps.h"
#include "harness/train/progress.h"
#include "harness/train/reporter.h"
#include "harness/train/session.h"
#include "harness/train/timers.h"
#include "kernels/base/seconds_since.h"

namespace bertha {

/// Steps whose gradient norm or loss is out of the ordinary, counted from 1.
struct Spike {
  int64_t first_step = 0;
  int64_t last_step = 0;
};

/// One training run of one rank, from the first log line to the exit code: start.h fills it in,
/// loop.cpp takes it from step to step, finish.h ends it.
struct TrainingRun {
  using Clock = std::chrono::steady_clock;

  /// Of all parts of the run up to now.
  double training_seconds() const { return earlier_seconds + seconds_of_this_process(); }
  double seconds_of_this_process() const { return seconds_since(started); }

  /// Of all GPUs over the same parts, each from its first step on; none where that of a part is not
  /// known. All ranks call it.
  std::optional<double> joules() const {
    const std::optional<double> here = energy ? energy->joules() : std::nullopt;
    if (!here || !earlier_joules) return std::nullopt;
    return *earlier_joules + *here;
  }

  Config config;  // log.run_dir is the folder that was chosen
  RunPlan plan;
  World* world = nullptr;
  RunFolder folder = {};              // on rank 0: holds the lock
  std::string run_dir = {};           // its path, on all ranks
  std::string settings = {};          // on rank 0: as YAML, with log.run_dir as it was given
  std::string resolved_config = {};   // on rank 0: the file of this start
  std::string changed_settings = {};  // on rank 0: since the last start in this folder
  std::unique_ptr<Reporter> reporter = nullptr;
  std::unique_ptr<Session> session = nullptr;
  std::unique_ptr<PhaseTimers> timers = nullptr;
  std::unique_ptr<ProfiledSteps> profiled = nullptr;
  std::unique_ptr<StepProbe> probe = nullptr;
  std::unique_ptr<Progress> progress = nullptr;
  std::unique_ptr<GpuMonitor> gpu = nullptr;
  std::unique_ptr<EnergyMeter> energy = nullptr;  // from the first step on
  std::unique_ptr<RankWatch> rank_watch = nullptr;
  std::unique_ptr<Watchdog> watchdog = nullptr;  // ends before what it checks

  // Progress.
  TrainingState state = {};
  std::optional<StepBatch> last_batch = std::nullopt;  // for the post-mortem
  int64_t next_eval = 0;                               // index in plan.evals
  int64_t evaluated_step = -1;                         // none
  int64_t saved_step = -1;                             // none
  bool out_of_data = false;
  std::string last_checkpoint = {};  // its folder
  int64_t peak_memory_bytes = 0;     // of this rank's device, as seen at the records of the log

  // What the host knows of the device's counters, see device_counters.h.
  TrainingState probed_state = {};  // when the last probe was captured
  bool is_probe_logged = false;     // whether the pending probe becomes a record of the log
  int64_t known_skips = 0;
  int64_t known_spikes = 0;    // that the log has told of
  int64_t recorded_skips = 0;  // of the last record
  int64_t most_skips_in_a_row = 0;
  std::optional<Spike> spike = std::nullopt;  // the first one that this rank knows of and that is
                                              // to be left out, see rewind.h
  int64_t rewinds = 0;                        // since the last checkpoint
  int64_t earlier_spikes = 0;                 // of this process, in steps that were thrown away

  // How it began.
  Clock::time_point started = Clock::now();
  double earlier_seconds = 0;                // of the parts of the run before a resume
  std::optional<double> earlier_joules = 0;  // likewise; none = not known
  int64_t first_step = 0;
  int64_t resumed_step = -1;  // none
  std::string origin = {};    // the checkpoint that this process began with; "" = none

  // The data. Last, so that they go first.
  std::vector<HostBatch> eval_batches = {};
  EvalSetFacts eval_set = {};
  std::unique_ptr<Pipeline> pipeline = nullptr;
};

}  // namespace bertha
