#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/pipeline/synthetic_steps.h"
#include "harness/model/batch_rows.h"
#include "harness/model/flops.h"
#include "harness/train/profiled_steps.h"
#include "harness/train/session.h"
#include "harness/train/step.h"
#include "harness/train/timers.h"

namespace bertha {

// What the benchmarks of whole steps share.

/// Steps of different lengths. So few that their graphs are recorded in the warm-up, as those of a
/// long run have been for most of its steps.
inline constexpr int64_t kBenchBatches = 4;

/// What the model computes in a step.
struct BenchWork {
  StepWork global;  // all ranks
  StepWork here;    // this rank
};
BenchWork work_of(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank);

/// The largest micro-batch of any rank, where the number of sequences follows from the lengths.
BatchRows capacity_of(const SyntheticSteps& steps, const std::vector<SyntheticPlan>& plans);

/// The largest of every rank's values, place by place. All ranks call it.
std::vector<double> most_over_ranks(Transport& transport, const std::vector<double>& mine);

/// Training steps of one rank, timed.
class BenchSteps {
 public:
  /// The batch of a step, counted from 0 at the first warm-up step; good until the next call.
  using NextBatch = std::function<const StepBatch&(int64_t step)>;
  /// Runs on the host before (true) and after (false) each step, in its time.
  using Around = std::function<void(bool is_before, int64_t step)>;
  BenchSteps(Session& session, NextBatch next, Around around = {});

  /// Blocks: the host, until they have run; then timers and counters are reset.
  void warm_up(int64_t steps);
  /// Milliseconds of each step on the device. Blocks: the host, at the end.
  std::vector<double> time(int64_t steps);

  PhaseTimers& timers() { return timers_; }

 private:
  void run();

  Session& session_;
  NextBatch next_;
  Around around_;
  PhaseTimers timers_;
  ProfiledSteps profiled_;
  StepSettings settings_;
  int64_t step_ = 0;
};

}  // namespace bertha
