#include "harness/train/device_counters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/report/text_format.h"
#include "harness/train/loss_jump.h"
#include "harness/train/rewind.h"
#include "kernels/base/error.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

bool is_log_due(const TrainingRun& run) {
  const TrainConfig& train = run.config.train;
  const int64_t step = run.state.step;
  return step % train.log_every_steps == 0 || step == train.max_steps || step == run.first_step + 1;
}

/// The first spike is the one to go back from: what follows it follows from it.
void note_spike(TrainingRun& run, const Spike& spike) {
  if (!goes_back(run)) return;
  if (!run.spike || spike.last_step < run.spike->last_step) run.spike = spike;
}

/// The device counts them; the log tells of the last one, and how many there were since.
void tell_of_spikes(TrainingRun& run, const LambState& lamb) {
  const int64_t spikes = lamb.spikes - std::exchange(run.known_spikes, lamb.spikes);
  if (spikes <= 0) return;
  const bool warns = run.config.optimizer.gradient_spike == GradientSpike::kWarn;
  note_spike(run, {.first_step = lamb.last_spike_step, .last_step = lamb.last_spike_step});
  const double norm = static_cast<double>(lamb.last_spike_norm);
  const double usual = static_cast<double>(lamb.last_spike_usual);
  run.reporter->warning(concat(
      "the gradient norm of step ", grouped_text(lamb.last_spike_step), " was ", scaled_text(norm),
      ", ", fixed_text(norm / usual, 1), " times the usual ", scaled_text(usual),
      warns ? "; its update was made" : "; its update was skipped",
      spikes > 1 ? concat(", the last of ", spikes, " such steps since the last record") : "",
      warns ? ". Where losses jump after it, set optimizer.gradient_spike to skip or "
              "rewind, or lower optimizer.base_learning_rate"
            : ""));
}

/// A record of the usual loss ends at the same steps wherever the process began.
void tell_of_loss_jump(TrainingRun& run, const LossStats& losses) {
  const int64_t step = run.probed_state.step;
  const int64_t every_steps = run.config.train.log_every_steps;
  const auto jump = add_losses(run.state.usual_loss, losses, step % every_steps == 0,
                               run.config.model.vocab_size);
  if (!jump) return;
  note_spike(run, {.first_step = step - every_steps + 1, .last_step = step});
  run.reporter->warning(concat("the masked-token loss jumped to ", fixed_text(jump->loss, 2),
                               " in the ", counted_text(every_steps, "step"), " to step ",
                               grouped_text(step), " from the usual ", fixed_text(jump->usual, 2)));
}

/// A single loss that is not finite leaves no mean: the log says how many there may have been.
void tell_of_lost_means(TrainingRun& run, const StepRecord& record) {
  const int64_t skips =
      record.skipped_steps - std::exchange(run.recorded_skips, record.skipped_steps);
  if (std::isfinite(record.loss)) return;
  run.reporter->warning(concat("the mean loss of the record at step ", grouped_text(record.step),
                               " is not finite; ", counted_text(skips, "update"),
                               skips == 1 ? " was" : " were", " skipped since the record before"));
}

}  // namespace

void report_probe(TrainingRun& run, const std::optional<StepScalars>& scalars) {
  if (!scalars) return;
  run.most_skips_in_a_row = scalars->lamb.most_skips_in_a_row;
  run.progress->add(scalars->stats);
  tell_of_spikes(run, scalars->lamb);
  tell_of_loss_jump(run, scalars->stats);
  if (!run.is_probe_logged) return;
  note_memory(run);
  StepRecord record = run.progress->record(*scalars, run.probed_state, *run.timers);
  record.spikes += run.earlier_spikes;
  record.memory_bytes = run.peak_memory_bytes;
  run.reporter->step(record);
  tell_of_lost_means(run, record);
  for (const std::string& sentence : run.rank_watch->add(scalars->ranks, record.step_ms)) {
    run.reporter->warning(sentence);
  }
}

void finish_probe(TrainingRun& run) {
  if (run.probe->is_pending()) report_probe(run, run.probe->wait());
}

void capture_probe_if_due(TrainingRun& run) {
  const bool log_due = is_log_due(run);
  const int64_t steps_unseen = run.state.step - run.probed_state.step;
  if (!log_due && steps_unseen < run.config.train.stop_after_skips) return;
  capture_probe(run, log_due);
}

void capture_probe(TrainingRun& run, bool is_logged) {
  finish_probe(run);
  std::optional<RankTimes> times;
  if (is_logged) {
    const GpuLoad load = run.gpu->load();
    times = run.progress->own_times(*run.timers);
    times->power_watts = static_cast<float>(load.power_watts);
    times->sm_mhz = static_cast<float>(load.sm_mhz);
  }
  run.probe->capture(*run.session->model, *run.session->optimizer, times);
  run.probed_state = run.state;
  run.is_probe_logged = is_logged;
}

void record_last_steps(TrainingRun& run) {
  finish_probe(run);
  if (!run.progress->has_open_steps()) return;
  capture_probe(run, true);
  finish_probe(run);
}

void note_memory(TrainingRun& run) {
  run.peak_memory_bytes =
      std::max(run.peak_memory_bytes, run.session->backend.device->used_memory_bytes());
}

LambState read_lamb_state(TrainingRun& run) {
  Device& device = *run.session->backend.device;
  Stream& stream = *run.session->backend.stream;
  const Buffer pinned = device.allocate_pinned(static_cast<int64_t>(sizeof(LambState)));
  device.copy(stream, pinned.data(), run.session->optimizer->state().data, sizeof(LambState));
  stream.wait_on_host();
  return *static_cast<const LambState*>(pinned.data());
}

void look_up_skips(TrainingRun& run) {
  run.state.lamb = read_lamb_state(run);
  run.state.fp8_scale_exponents = run.session->model->scale_exponents();
  run.known_skips = run.state.lamb.skipped_steps;
  run.most_skips_in_a_row = run.state.lamb.most_skips_in_a_row;
  run.state.samples_trained = run.state.lamb.successful_steps * run.config.train.global_batch_seqs;
}

bool is_numeric_failure(const TrainingRun& run) {
  return run.most_skips_in_a_row >= run.config.train.stop_after_skips;
}

}  // namespace bertha
