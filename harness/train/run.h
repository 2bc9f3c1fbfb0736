#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "harness/comm/energy_meter.h"
#include "harness/config/run_plan.h"
#include "harness/report/run_records.h"
#include "harness/train/data_source.h"
#include "harness/train/evaluate.h"
#include "harness/train/session.h"
#include "kernels/base/seconds_since.h"

namespace bertha {

/// The contents of a checkpoint (weights, moments, progress, position in the data), and the objects
/// with which this rank trains and evaluates them.
struct Run {
  using Clock = std::chrono::steady_clock;

  /// Seconds in this process and in the run's earlier processes.
  double training_seconds() const { return earlier_seconds + seconds_of_this_process(); }
  double seconds_of_this_process() const { return seconds_since(started); }
  /// Energy of all GPUs over the same time, each process counted from its first step; none if a
  /// part is unknown. All ranks call it.
  std::optional<double> joules() const;

  Config config;
  RunPlan plan;
  World* world = nullptr;
  std::string run_dir = {};  // the chosen folder, on all ranks
  std::unique_ptr<Session> session = nullptr;
  TrainingState state = {};                            // lamb: the host's last reading
  std::optional<StepBatch> last_batch = std::nullopt;  // for the post-mortem
  std::string last_checkpoint = {};                    // its folder
  int64_t saved_step = -1;                             // step of last_checkpoint; -1 = save again
  std::unique_ptr<EnergyMeter> energy = nullptr;       // from the first step on

  // How this process began.
  std::string origin = {};  // the checkpoint; "" = initial weights
  int64_t first_step = 0;
  Clock::time_point started = Clock::now();
  double earlier_seconds = 0;
  std::optional<double> earlier_joules = 0;  // none = unknown

  // The data: last members, so that they are destroyed first.
  std::vector<HostBatch> eval_batches = {};
  EvalSetFacts eval_set = {};
  std::unique_ptr<Pipeline> pipeline = nullptr;
};

/// Present counters of the optimizer, the same on all ranks. Blocks: the host.
LambState read_lamb_state(const Session& session);
/// Reads them into the state, which otherwise counts the steps since the last reading as
/// successful. Blocks: the host.
void look_up_skips(Run& run);
/// Whether too many consecutive updates have been skipped, by the last reading of the counters.
bool is_numeric_failure(const Run& run);

/// The batches of the remaining steps. Errors as plan_training_data().
OpenPipeline plan_batches(const Run& run);

/// Whether the plan has an evaluation here. The plan counts successful updates: at its boundary the
/// number of skipped ones is read, and the evaluation is postponed by as many steps.
bool is_eval_due(Run& run);
/// Whether the state has an evaluation of this step.
bool is_evaluated(const Run& run);
/// Evaluates, and adds the result to the state. Uses and zeroes the model's statistics. All ranks
/// call it. Returns the record without the throughput.
EvalRecord evaluate(Run& run);
/// Accuracy that the last evaluation must reach; 0 = no target.
double target_accuracy(const Run& run);
bool is_target_reached(const Run& run);

/// Writes a checkpoint, with time and energy up to now. All ranks call it. Errors as
/// save_checkpoint().
void save(Run& run);

}  // namespace bertha
