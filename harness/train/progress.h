#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "data/pipeline/batch.h"
#include "harness/model/dims.h"
#include "harness/train/probe.h"
#include "harness/train/reporter.h"
#include "harness/train/timers.h"

namespace bertha {

/// Turns batches, timers and probed scalars into log records of the sums since the last one.
class Progress {
 public:
  /// nsp_weight: weight of the next-sentence loss in the sum of both losses.
  Progress(const Dims& dims, int64_t num_ranks, int64_t last_step, double nsp_weight = 1.0)
      : dims_(dims), num_ranks_(num_ranks), last_step_(last_step), nsp_weight_(nsp_weight) {}

  void count(const StepBatch& batch, double data_wait_ms);
  /// Assigns the steps counted since the last call to the next record, whose scalars have been
  /// captured. Returns this rank's share of their time, to gather for that record.
  RankTimes own_times(PhaseTimers& timers);
  /// Losses and counts of a probe, for the next record.
  void add(const LossStats& stats);
  /// Leaves the steps since the last record out of the next one: they were discarded.
  void forget(PhaseTimers& timers);
  /// The record of the steps counted before the last own_times(), after which `step` steps and
  /// `samples` sequences were trained. Uses all `scalars` except the statistics.
  StepRecord record(const StepScalars& scalars, int64_t step, int64_t samples, PhaseTimers& timers);
  /// Whether steps were counted since own_times().
  bool has_open_steps() const { return open_.steps > 0; }
  /// Training sequences per second since the last evaluation, excluding its time.
  double seqs_per_second_since_eval();
  /// Rates over all recorded steps of this process.
  double seqs_per_second() const;
  double tokens_per_second() const;
  /// Excludes the time of an evaluation or a save from the steps.
  void exclude(double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  /// Sums over steps.
  struct Counts {
    int64_t steps = 0;
    int64_t seqs = 0;
    int64_t tokens = 0;
    double flops = 0;
    double data_wait_ms = 0;
    double token_imbalance = 0;

    void add(const Counts& more);
  };

  void take_phases(PhaseTimers& timers);

  Dims dims_;
  int64_t num_ranks_ = 1;
  int64_t last_step_ = 0;  // with skipped updates, train.max_samples may take more steps
  double nsp_weight_ = 1.0;
  Clock::time_point since_ = Clock::now();
  Counts open_;    // since own_times()
  Counts closed_;  // before it, for the next record
  LossStats stats_;
  std::array<double, kNumPhases> phases_ms_{};
  double compute_ms_since_own_times_ = 0;
  double excluded_seconds_ = 0;
  double train_seconds_since_eval_ = 0;
  int64_t seqs_since_eval_ = 0;
  double total_seconds_ = 0;
  int64_t total_seqs_ = 0;
  int64_t total_tokens_ = 0;
};

}  // namespace bertha
