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

/// So many that batches of different lengths are seen, and few enough to be made quickly.
inline constexpr int64_t kBenchBatches = 4;

/// A batch of this rank, and what the model computes on it over all ranks.
struct BenchStepBatch {
  StepBatch batch;
  StepWork work;       // all ranks
  StepWork work_here;  // this rank
};
BenchStepBatch make_bench_batch(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank,
                                const HostAllocator& allocate);

/// The largest micro-batch of any rank, where the number of sequences follows from the lengths.
BatchRows capacity_of(const SyntheticSteps& steps, const std::vector<SyntheticPlan>& plans);

/// The largest of every rank's values, place by place. All ranks call it.
std::vector<double> most_over_ranks(Transport& transport, const std::vector<double>& mine);

/// Training steps of one rank on a few batches in turn.
class BenchSteps {
 public:
  /// `around` runs on the host before (true) and after (false) each step, in its time.
  using Around = std::function<void(bool is_before, int64_t batch)>;
  BenchSteps(Session& session, std::vector<BenchStepBatch> batches, const Around& around = {});

  /// Blocks: the host, until they have run; then timers and counters are reset.
  void warm_up(int64_t steps);
  /// Milliseconds of each step on the device. Blocks: the host, at the end.
  std::vector<double> time(int64_t steps);
  /// Ends what a profiler records; see ProfiledSteps.
  void stop_profiling() { profiled_.stop(); }

  /// Of step i, counted from the first warm-up step.
  BenchStepBatch& batch_of(int64_t step) {
    return batches_[static_cast<size_t>(step % std::ssize(batches_))];
  }
  PhaseTimers& timers() { return timers_; }

 private:
  void run();

  Session& session_;
  std::vector<BenchStepBatch> batches_;
  Around around_;
  PhaseTimers timers_;
  ProfiledSteps profiled_;
  StepSettings settings_;
  int64_t step_ = 0;
};

}  // namespace bertha
