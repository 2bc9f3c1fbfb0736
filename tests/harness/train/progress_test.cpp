#include "harness/train/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "harness/train/timers.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/harness/train/training_rig.h"

namespace bertha::testing {
namespace {

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class TimersTest : public ::testing::Test {
 protected:
  double total(Phase phase) {
    totals_ = timers_.take_totals_ms();
    return totals_[static_cast<size_t>(phase)];
  }
  double of(Phase phase) const { return totals_[static_cast<size_t>(phase)]; }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  PhaseTimers timers_{*device_, *stream_};
  std::array<double, kNumPhases> totals_{};
};

TEST_F(TimersTest, AddUpThePhasesAndStartAnew) {
  timers_.begin(Phase::kForward);
  sleep_ms(20);
  timers_.begin(Phase::kBackward);  // ends the phase before
  sleep_ms(40);
  timers_.begin(Phase::kForward);
  sleep_ms(10);
  timers_.end();
  EXPECT_GE(total(Phase::kForward), 30);
  EXPECT_GE(of(Phase::kBackward), 40);
  EXPECT_EQ(of(Phase::kCommunication), 0);
  EXPECT_EQ(total(Phase::kForward), 0);
  EXPECT_EQ(of(Phase::kBackward), 0);
}

TEST_F(TimersTest, APhaseUnderWayCountsNextTime) {
  timers_.begin(Phase::kOptimizer);
  sleep_ms(5);
  EXPECT_EQ(total(Phase::kOptimizer), 0);
  timers_.end();
  EXPECT_GE(total(Phase::kOptimizer), 5);
  timers_.end();  // nothing is open
  EXPECT_EQ(total(Phase::kOptimizer), 0);
}

class ProgressTest : public ::testing::Test {
 protected:
  static StepBatch batch(int64_t seqs, int64_t tokens, int64_t most) {
    StepBatch step = rig_step({rig_sequences(2)}, seqs, 9);
    step.num_tokens_global = tokens;
    step.most_tokens_per_rank = most;
    return step;
  }

  /// Of all steps so far.
  StepRecord record_of(Progress& progress, const StepScalars& scalars, int64_t step) {
    progress.own_times(timers_);
    return progress.record(scalars, step, 12 * step, timers_);
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  PhaseTimers timers_{*device_, *stream_};
  Dims dims_ = make_dims(rig_model());
  const StepScalars scalars_{.stats = {.mlm_loss_sum = 40,
                                       .nsp_loss_sum = 6,
                                       .mlm_correct = 3,
                                       .mlm_count = 8,
                                       .nsp_correct = 5,
                                       .nsp_count = 12},
                             .lamb = {.successful_steps = 9,
                                      .skipped_steps = 1,
                                      .loss_scale = 16,
                                      .learning_rate = 0.25f,
                                      .gradient_norm = 3}};
};

TEST_F(ProgressTest, ARecordIsTheMeanOfItsSteps) {
  Progress progress(dims_, 2, 30, 0.5);
  timers_.begin(Phase::kForward);
  sleep_ms(20);
  timers_.begin(Phase::kOptimizer);
  sleep_ms(10);
  timers_.end();
  progress.count(batch(12, 200, 120), 4);
  progress.count(batch(12, 100, 50), 2);
  progress.add(scalars_.stats);
  const StepRecord record = record_of(progress, scalars_, 10);
  EXPECT_EQ(record.step, 10);
  EXPECT_EQ(record.samples, 120);
  EXPECT_EQ(record.mlm_loss, 5);
  EXPECT_EQ(record.nsp_loss, 0.5);
  EXPECT_EQ(record.loss, 5.25);
  EXPECT_EQ(record.mlm_accuracy, 3.0 / 8.0);
  EXPECT_EQ(record.learning_rate, 0.25);
  EXPECT_EQ(record.gradient_norm, 3);
  EXPECT_EQ(record.loss_scale, 16);
  EXPECT_EQ(record.skipped_steps, 1);
  EXPECT_EQ(record.data_wait_ms, 3);
  EXPECT_GE(record.forward_ms, 10);  // 20 ms over two steps
  EXPECT_GE(record.optimizer_ms, 5);
  EXPECT_EQ(record.backward_ms, 0);
  EXPECT_EQ(record.communication_ms, 0);
  EXPECT_LE(record.forward_ms + record.optimizer_ms, record.step_ms);
  const double seconds = 2 * record.step_ms / 1e3;
  EXPECT_NEAR(record.seqs_per_second, 24 / seconds, 1e-6 * record.seqs_per_second);
  EXPECT_NEAR(record.tokens_per_second, 300 / seconds, 1e-6 * record.tokens_per_second);
  EXPECT_NEAR(record.eta_seconds, 20 * record.step_ms / 1e3, 1e-6);
  // Fullest rank over the mean: 120 / 100 and 50 / 50.
  EXPECT_DOUBLE_EQ(record.token_imbalance, 1.1);
  EXPECT_GT(record.flops_per_second, 0);
  progress.count(batch(12, 100, 50), 2);
  EXPECT_EQ(record_of(progress, scalars_, 31).eta_seconds, 0) << "beyond the planned end";
}

TEST_F(ProgressTest, LossesAreMeansOverAllProbesSinceTheLastRecord) {
  Progress progress(dims_, 1, 30);
  progress.count(batch(12, 200, 200), 0);
  progress.add({.mlm_loss_sum = 40, .mlm_correct = 3, .mlm_count = 8});
  progress.add({.mlm_loss_sum = 4, .mlm_correct = 1, .mlm_count = 2});
  const StepRecord record = record_of(progress, {}, 10);
  EXPECT_DOUBLE_EQ(record.mlm_loss, 4.4);
  EXPECT_DOUBLE_EQ(record.mlm_accuracy, 0.4);
  progress.count(batch(12, 200, 200), 0);
  EXPECT_EQ(record_of(progress, {}, 11).mlm_loss, 0);
}

TEST_F(ProgressTest, ARunOfMaskedTokensOnlyHasNoLossOfNextSentences) {
  Progress progress(dims_, 2, 30, 0);
  progress.count(batch(12, 200, 120), 4);
  progress.add(scalars_.stats);
  const StepRecord record = record_of(progress, scalars_, 10);
  EXPECT_EQ(record.nsp_loss, std::nullopt);
  EXPECT_EQ(record.loss, record.mlm_loss);
}

TEST_F(ProgressTest, StepsThatWereThrownAwayLeaveNoTrace) {
  Progress progress(dims_, 2, 30);
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    timers_.begin(phase);
    sleep_ms(5);
    timers_.end();
    progress.count(batch(12, 200, 120), 40);
    progress.add(scalars_.stats);
    if (phase == Phase::kForward) progress.own_times(timers_);
  }
  progress.forget(timers_);
  EXPECT_FALSE(progress.has_open_steps());
  EXPECT_EQ(progress.seqs_per_second_since_eval(), 0);
  progress.count(batch(12, 200, 120), 1);
  EXPECT_EQ(progress.own_times(timers_).compute_ms, 0);
  const StepRecord record = progress.record({}, 5, 12 * 5, timers_);
  EXPECT_EQ(record.forward_ms, 0);
  EXPECT_EQ(record.backward_ms, 0);
  EXPECT_EQ(record.data_wait_ms, 1);
  EXPECT_EQ(record.mlm_loss, 0);
}

TEST_F(ProgressTest, OwnTimesAreThoseSinceTheLastCallAndStayInTheRecord) {
  Progress progress(dims_, 2, 30);
  timers_.begin(Phase::kForward);
  sleep_ms(4);
  timers_.begin(Phase::kBackward);
  sleep_ms(8);
  timers_.begin(Phase::kCommunication);
  sleep_ms(40);
  timers_.end();
  progress.count(batch(12, 200, 120), 4);
  progress.count(batch(12, 200, 120), 2);
  const RankTimes times = progress.own_times(timers_);
  EXPECT_GE(times.compute_ms, 6);  // 12 ms over two steps
  EXPECT_EQ(times.data_wait_ms, 3);
  EXPECT_EQ(progress.own_times(timers_).compute_ms, 0);
  const StepRecord record = progress.record({}, 2, 12 * 2, timers_);
  EXPECT_NEAR(record.forward_ms + record.backward_ms, static_cast<double>(times.compute_ms), 1e-3);
  EXPECT_GE(record.communication_ms, 20);
}

// A device finishes a record's steps while the host is some steps ahead, where the run may end.
TEST_F(ProgressTest, StepsEnqueuedBeforeARecordArrivesAreOfTheNextOne) {
  Progress progress(dims_, 1, 30);
  progress.count(batch(12, 200, 200), 6);
  progress.count(batch(12, 100, 100), 2);
  EXPECT_TRUE(progress.has_open_steps());
  progress.own_times(timers_);
  EXPECT_FALSE(progress.has_open_steps());
  progress.count(batch(6, 90, 90), 1);
  sleep_ms(2);
  const StepRecord first = progress.record(scalars_, 2, 12 * 2, timers_);
  EXPECT_EQ(first.data_wait_ms, 4);
  EXPECT_NEAR(first.tokens_per_second, 150e3 / first.step_ms, 1e-6 * first.tokens_per_second);
  EXPECT_TRUE(progress.has_open_steps());
  const StepRecord last = record_of(progress, scalars_, 3);
  EXPECT_EQ(last.data_wait_ms, 1);
  EXPECT_NEAR(last.tokens_per_second, 90e3 / last.step_ms, 1e-6 * last.tokens_per_second);
}

TEST_F(ProgressTest, TheNextRecordStartsAnew) {
  Progress progress(dims_, 1, 30);
  progress.count(batch(12, 200, 200), 100);
  record_of(progress, scalars_, 1);
  sleep_ms(10);
  progress.count(batch(6, 90, 90), 1);
  const StepRecord record = record_of(progress, scalars_, 2);
  EXPECT_EQ(record.data_wait_ms, 1);
  EXPECT_NEAR(record.seqs_per_second, 6e3 / record.step_ms, 1e-6 * record.seqs_per_second);
  EXPECT_DOUBLE_EQ(record.token_imbalance, 1);
}

TEST_F(ProgressTest, TimeOfEvaluationAndSavingBelongsToNoStep) {
  Progress progress(dims_, 1, 30);
  progress.count(batch(10, 100, 100), 0);
  sleep_ms(60);
  progress.exclude(0.055);
  const StepRecord record = record_of(progress, scalars_, 1);
  EXPECT_GE(record.step_ms, 5 - 1e-6);
  EXPECT_LT(record.step_ms, 1000);  // a loaded machine may stall, but the 55 ms are taken off
  EXPECT_NEAR(progress.seqs_per_second(), record.seqs_per_second, 1e-6 * record.seqs_per_second);
  EXPECT_NEAR(progress.tokens_per_second(), record.tokens_per_second,
              1e-6 * record.tokens_per_second);
}

TEST_F(ProgressTest, WithoutMaskedTokensTheMeansAreZero) {
  Progress progress(dims_, 1, 30);
  progress.count(batch(1, 10, 10), 0);
  const StepRecord record = record_of(progress, {}, 1);
  EXPECT_EQ(record.loss, 0);
  EXPECT_EQ(record.mlm_accuracy, 0);
}

TEST_F(ProgressTest, ThroughputSinceTheEvaluationCountsEachSequenceOnce) {
  Progress progress(dims_, 1, 30);
  EXPECT_EQ(progress.seqs_per_second_since_eval(), 0);
  sleep_ms(20);
  progress.count(batch(10, 100, 100), 0);
  const double first = progress.seqs_per_second_since_eval();
  EXPECT_GT(first, 0);
  EXPECT_LE(first, 10 / 0.020);
  progress.exclude(5.0);  // an evaluation of five seconds
  EXPECT_EQ(progress.seqs_per_second_since_eval(), 0);
}

}  // namespace
}  // namespace bertha::testing
