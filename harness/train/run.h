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

/// What a checkpoint contains (weights, moments, progress, place in the data), and what this rank
/// trains and evaluates it with.
struct Run {
  using Clock = std::chrono::steady_clock;

  /// Seconds in this process and in the processes that the run went through before.
  double training_seconds() const { return earlier_seconds + seconds_of_this_process(); }
  double seconds_of_this_process() const { return seconds_since(started); }
  /// Energy of all GPUs over the same time, each process counted from its first step; none if a
  /// part is not known. All ranks call it.
  std::optional<double> joules() const;

  Config config;
  RunPlan plan;
  World* world = nullptr;
  std::string run_dir = {};  // the folder that was chosen, on all ranks
  std::unique_ptr<Session> session = nullptr;
  TrainingState state = {};                            // lamb: as the host last read it
  std::optional<StepBatch> last_batch = std::nullopt;  // for the post-mortem
  std::string last_checkpoint = {};                    // its folder
  int64_t saved_step = -1;                             // of last_checkpoint; -1 = save again
  std::unique_ptr<EnergyMeter> energy = nullptr;       // from the first step on

  // How this process began.
  std::string origin = {};  // the checkpoint; "" = with fresh weights
  int64_t first_step = 0;
  Clock::time_point started = Clock::now();
  double earlier_seconds = 0;
  std::optional<double> earlier_joules = 0;  // none = not known

  // The data. Last, so that they go first.
  std::vector<HostBatch> eval_batches = {};
  EvalSetFacts eval_set = {};
  std::unique_ptr<Pipeline> pipeline = nullptr;
};

/// Counters of the optimizer as they are now, the same on all ranks. Blocks: the host.
LambState read_lamb_state(const Session& session);
/// Reads them into the state, which until then counts the steps since the last time as successful.
/// Blocks: the host.
void look_up_skips(Run& run);
/// Whether too many updates in a row have been skipped since the start, as far as is known.
bool is_numeric_failure(const Run& run);

/// The batches of the steps that are left. Errors as plan_training_data().
OpenPipeline plan_batches(const Run& run);

/// Whether the plan has an evaluation here. The plan counts successful updates: at its boundary the
/// skipped ones are looked up, and the evaluation waits until they have been made up for.
bool is_eval_due(Run& run);
/// Whether the state has an evaluation of this step.
bool is_evaluated(const Run& run);
/// Evaluates, and adds the result to the state. Uses and zeroes the model's statistics. All ranks
/// call it. Returns the record without the throughput.
EvalRecord evaluate(Run& run);
/// What the last evaluation has to reach; 0 = no target.
double target_accuracy(const Run& run);
bool is_target_reached(const Run& run);

/// Writes a checkpoint, with time and energy up to now. All ranks call it. Errors as
/// save_checkpoint().
void save(Run& run);

}  // namespace bertha
