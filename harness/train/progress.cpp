#include "harness/train/progress.h"

#include <algorithm>
#include <utility>

#include "harness/model/flops.h"
#include "harness/model/fp8_state.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

double per(double sum, double count) { return count > 0 ? sum / count : 0.0; }

/// Model FLOPs of the whole step, assuming that all ranks have this rank's sequence lengths.
double step_flops(const Dims& dims, const StepBatch& batch, int64_t num_ranks) {
  int64_t squared_tokens = 0;
  for (const HostBatch& micro : batch.micro_batches) {
    for (size_t b = 0; b + 1 < micro.cu_seqlens.size(); ++b) {
      const int64_t length = micro.cu_seqlens[b + 1] - micro.cu_seqlens[b];
      squared_tokens += length * length;
    }
  }
  return model_flops_per_step(dims, {.num_tokens = batch.num_tokens_global,
                                     .num_masked = batch.num_masked_global,
                                     .num_seqs = batch.num_seqs_global,
                                     .squared_tokens = squared_tokens * num_ranks});
}

}  // namespace

void Progress::Counts::add(const Counts& more) {
  steps += more.steps;
  seqs += more.seqs;
  tokens += more.tokens;
  flops += more.flops;
  data_wait_ms += more.data_wait_ms;
  token_imbalance += more.token_imbalance;
}

void Progress::count(const StepBatch& batch, double data_wait_ms) {
  const double mean_tokens =
      per(static_cast<double>(batch.num_tokens_global), static_cast<double>(num_ranks_));
  open_.add({.steps = 1,
             .seqs = batch.num_seqs_global,
             .tokens = batch.num_tokens_global,
             .flops = step_flops(dims_, batch, num_ranks_),
             .data_wait_ms = data_wait_ms,
             .token_imbalance = per(static_cast<double>(batch.most_tokens_per_rank), mean_tokens)});
  seqs_since_eval_ += batch.num_seqs_global;
}

void Progress::take_phases(PhaseTimers& timers) {
  const auto phases_ms = timers.take_totals_ms();
  for (size_t phase = 0; phase < kNumPhases; ++phase) phases_ms_[phase] += phases_ms[phase];
  compute_ms_since_own_times_ += phases_ms[static_cast<size_t>(Phase::kForward)] +
                                 phases_ms[static_cast<size_t>(Phase::kBackward)];
}

RankTimes Progress::own_times(PhaseTimers& timers) {
  take_phases(timers);
  const Counts counts = std::exchange(open_, {});
  closed_.add(counts);
  const auto steps = static_cast<double>(counts.steps);
  return {
      .compute_ms = static_cast<float>(per(std::exchange(compute_ms_since_own_times_, 0.0), steps)),
      .data_wait_ms = static_cast<float>(per(counts.data_wait_ms, steps))};
}

void Progress::add(const LossStats& stats) {
  stats_.mlm_loss_sum += stats.mlm_loss_sum;
  stats_.nsp_loss_sum += stats.nsp_loss_sum;
  stats_.mlm_correct += stats.mlm_correct;
  stats_.mlm_count += stats.mlm_count;
  stats_.nsp_correct += stats.nsp_correct;
  stats_.nsp_count += stats.nsp_count;
  stats_.fp8_saturated += stats.fp8_saturated;
}

void Progress::forget(PhaseTimers& timers) {
  own_times(timers);
  stats_ = {};
  phases_ms_ = {};
  since_ = Clock::now();
  closed_ = {};
  excluded_seconds_ = 0;
  train_seconds_since_eval_ = 0;
  seqs_since_eval_ = 0;
}

StepRecord Progress::record(const StepScalars& scalars, int64_t step, int64_t samples,
                            PhaseTimers& timers) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::max(
      std::chrono::duration<double>(now - since_).count() - std::exchange(excluded_seconds_, 0.0),
      1e-9);
  take_phases(timers);
  const auto phases_ms = std::exchange(phases_ms_, {});
  const Counts counts = std::exchange(closed_, {});
  const auto seqs = static_cast<double>(counts.seqs), tokens = static_cast<double>(counts.tokens);
  const double steps = static_cast<double>(std::max<int64_t>(counts.steps, 1));
  const auto phase_ms = [&](Phase phase) { return phases_ms[static_cast<size_t>(phase)] / steps; };
  const LossStats sums = std::exchange(stats_, {});
  const double mlm_loss = per(sums.mlm_loss_sum, static_cast<double>(sums.mlm_count));
  const double tokens_per_seq = per(tokens, seqs);
  const double nsp_loss = per(sums.nsp_loss_sum, static_cast<double>(sums.nsp_count));

  const StepRecord record{
      .step = step,
      .samples = samples,
      .loss = mlm_loss + nsp_weight_ * nsp_loss,
      .mlm_loss = mlm_loss,
      .nsp_loss = nsp_weight_ > 0 ? std::optional(nsp_loss) : std::nullopt,
      .mlm_accuracy =
          per(static_cast<double>(sums.mlm_correct), static_cast<double>(sums.mlm_count)),
      .learning_rate = scalars.lamb.learning_rate,
      .gradient_norm = scalars.lamb.gradient_norm,
      .loss_scale = scalars.lamb.loss_scale,
      .skipped_steps = scalars.lamb.skipped_steps,
      .spikes = scalars.lamb.spikes,
      .step_ms = 1e3 * seconds / steps,
      .data_wait_ms = counts.data_wait_ms / steps,
      .forward_ms = phase_ms(Phase::kForward),
      .backward_ms = phase_ms(Phase::kBackward),
      .communication_ms = phase_ms(Phase::kCommunication),
      .optimizer_ms = phase_ms(Phase::kOptimizer),
      .seqs_per_second = seqs / seconds,
      .tokens_per_second = tokens / seconds,
      .flops_per_second = counts.flops / seconds,
      .eta_seconds = std::max(0.0, static_cast<double>(last_step_ - step)) * seconds / steps,
      .token_imbalance = counts.token_imbalance / steps,
      .fp8_saturated = per(static_cast<double>(sums.fp8_saturated),
                           static_cast<double>(sums.nsp_count) * tokens_per_seq *
                                   static_cast<double>(quantized_per_token(dims_)) +
                               static_cast<double>(sums.mlm_count) *
                                   static_cast<double>(quantized_per_masked_token(dims_))),
      .ranks = summary_of(scalars.ranks)};

  train_seconds_since_eval_ += seconds;
  total_seconds_ += seconds;
  total_seqs_ += counts.seqs;
  total_tokens_ += counts.tokens;
  since_ = now;
  return record;
}

double Progress::seqs_per_second_since_eval() {
  const double open_seconds = seconds_since(since_) - excluded_seconds_;
  const double seconds = train_seconds_since_eval_ + open_seconds;
  train_seconds_since_eval_ = -open_seconds;  // record() counts the open part again
  return per(static_cast<double>(std::exchange(seqs_since_eval_, 0)), seconds);
}

double Progress::seqs_per_second() const {
  return per(static_cast<double>(total_seqs_), total_seconds_);
}

double Progress::tokens_per_second() const {
  return per(static_cast<double>(total_tokens_), total_seconds_);
}

void Progress::exclude(double seconds) { excluded_seconds_ += seconds; }

}  // namespace bertha
