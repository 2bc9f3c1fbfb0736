#include "harness/train/device_counters.h"

#include <algorithm>

namespace bertha {
namespace {

bool is_log_due(const TrainingRun& run) {
  const TrainConfig& train = run.config.train;
  const int64_t step = run.state.step;
  return step % train.log_every_steps == 0 || step == train.max_steps || step == run.first_step + 1;
}

}  // namespace

void report_probe(TrainingRun& run, const std::optional<StepScalars>& scalars) {
  if (!scalars) return;
  run.most_skips_in_a_row = scalars->lamb.most_skips_in_a_row;
  if (!run.is_probe_logged) return;
  note_memory(run);
  run.reporter->step(run.progress->record(*scalars, run.probed_state, *run.timers));
}

void finish_probe(TrainingRun& run) {
  if (run.probe->is_pending()) report_probe(run, run.probe->wait());
}

void capture_probe_if_due(TrainingRun& run) {
  const bool log_due = is_log_due(run);
  const int64_t steps_unseen = run.state.step - run.probed_state.step;
  if (!log_due && steps_unseen < run.config.train.stop_after_skips) return;
  finish_probe(run);
  run.probe->capture(*run.session->model, *run.session->optimizer);
  run.probed_state = run.state;
  run.is_probe_logged = log_due;
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
