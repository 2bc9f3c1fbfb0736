#include "harness/train/telemetry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/comm/rank_name.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

/// The device counts spikes; the log describes the last one and states their number.
void warn_of_spikes(const Telemetry& telemetry, const Run& run, const LambState& lamb,
                    int64_t spikes) {
  const bool warns = run.config.optimizer.gradient_spike == SpikeRule::kWarn;
  const double norm = static_cast<double>(lamb.last_spike_norm);
  const double usual = static_cast<double>(lamb.last_spike_usual);
  telemetry.reporter->warning(concat(
      "the gradient norm of step ", grouped_text(lamb.last_spike_step), " was ", scaled_text(norm),
      ", ", fixed_text(norm / usual, 1), " times the usual ", scaled_text(usual),
      warns ? "; its update was applied" : "; its update was skipped",
      spikes > 1 ? concat(", the last of ", spikes, " such steps since the last record") : "",
      warns ? ". If losses jump after it, set optimizer.gradient_spike to skip or "
              "rewind, or lower optimizer.base_learning_rate"
            : ""));
}

void warn_of_jump(const Telemetry& telemetry, const Run& run, const LossJump& jump) {
  telemetry.reporter->warning(
      concat("the masked-token loss jumped to ", fixed_text(jump.loss, 2), " in the ",
             counted_text(run.config.train.log_every_steps, "step"), " to step ",
             grouped_text(telemetry.probed_step), " from the usual ", fixed_text(jump.usual, 2)));
}

/// A single loss that is not finite invalidates the mean; the log states how many updates were
/// skipped.
void warn_of_lost_mean(Telemetry& telemetry, const StepRecord& record) {
  const int64_t skips =
      record.skipped_steps - std::exchange(telemetry.recorded_skips, record.skipped_steps);
  if (std::isfinite(record.loss)) return;
  telemetry.reporter->warning(concat("the mean loss of the record at step ",
                                     grouped_text(record.step), " is not finite; ",
                                     counted_text(skips, "update"), skips == 1 ? " was" : " were",
                                     " skipped since the previous record"));
}

}  // namespace

void attach(Telemetry& telemetry, const Run& run) {
  const Session& session = *run.session;
  World& world = *run.world;
  Device& device = session.backend->device();
  Stream& stream = session.backend->stream();
  telemetry.timers = std::make_unique<PhaseTimers>(device, stream);
  telemetry.profiled =
      std::make_unique<ProfiledSteps>(run.config.log.profile_steps, device, stream);
  telemetry.probe = std::make_unique<StepProbe>(session.parts(), session.backend->collectives());
  telemetry.progress = std::make_unique<Progress>(session.dims, world.size(), run.plan.last_step,
                                                  run.config.train.nsp_weight);
  telemetry.gpu = std::make_unique<GpuMonitor>(session.gpu.bus_id);
  telemetry.rank_watch = std::make_unique<RankWatch>([&world](int64_t rank) {
    const std::string host = world.board().status(static_cast<int>(rank)).host;
    // A rank on another node may not have sent its name yet.
    return host.empty() ? concat("rank ", rank)
                        : rank_name(static_cast<int>(rank), world.size(), host);
  });
}

void begin_records(Telemetry& telemetry, const Run& run) {
  telemetry.progress->forget(*telemetry.timers);
  telemetry.probed_step = run.state.step;
  telemetry.probed_samples = run.state.samples_trained;
  telemetry.recorded_skips = run.state.lamb.skipped_steps;
}

bool has_record(const Run& run) {
  const TrainConfig& train = run.config.train;
  const int64_t step = run.state.step;
  return step % train.log_every_steps == 0 || step == train.max_steps || step == run.first_step + 1;
}

bool is_capture_due(const Telemetry& telemetry, const Run& run) {
  const int64_t steps_unseen = run.state.step - telemetry.probed_step;
  return has_record(run) || steps_unseen >= run.config.train.stop_after_skips;
}

void capture(Telemetry& telemetry, const Run& run, bool is_logged) {
  std::optional<RankTimes> times;
  if (is_logged) {
    const GpuLoad load = telemetry.gpu->load();
    times = telemetry.progress->own_times(*telemetry.timers);
    times->power_watts = static_cast<float>(load.power_watts);
    times->sm_mhz = static_cast<float>(load.sm_mhz);
  }
  telemetry.probe->capture(*run.session->model, *run.session->optimizer, times);
  telemetry.probed_step = run.state.step;
  telemetry.probed_samples = run.state.samples_trained;
  telemetry.is_probe_logged = is_logged;
}

void write_scalars(Telemetry& telemetry, const Run& run, const StepScalars& scalars,
                   const Findings& findings) {
  telemetry.progress->add(scalars.stats);
  if (findings.new_spikes > 0) warn_of_spikes(telemetry, run, scalars.lamb, findings.new_spikes);
  if (findings.jump) warn_of_jump(telemetry, run, *findings.jump);
  if (!telemetry.is_probe_logged) return;
  note_memory(telemetry, run);
  StepRecord record = telemetry.progress->record(scalars, telemetry.probed_step,
                                                 telemetry.probed_samples, *telemetry.timers);
  record.spikes = findings.all_spikes;
  record.memory_bytes = telemetry.peak_memory_bytes;
  telemetry.reporter->step(record);
  warn_of_lost_mean(telemetry, record);
  for (const std::string& sentence : telemetry.rank_watch->add(scalars.ranks, record.step_ms)) {
    telemetry.reporter->warning(sentence);
  }
}

void note_memory(Telemetry& telemetry, const Run& run) {
  telemetry.peak_memory_bytes =
      std::max(telemetry.peak_memory_bytes, run.session->backend->device().used_memory_bytes());
}

}  // namespace bertha
