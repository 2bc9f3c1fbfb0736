#include "harness/train/lifecycle.h"

#include <utility>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/report/run_folder.h"
#include "harness/report/text_format.h"
#include "harness/train/resume.h"
#include "harness/train/signals.h"

namespace bertha {
namespace {

/// Notes the first spike only: later ones follow from it.
void note_spike(Lifecycle& lifecycle, const Run& run, const Spike& spike) {
  if (!rewinds_on_spikes(run)) return;
  if (!lifecycle.spike || spike.last_step < lifecycle.spike->last_step) lifecycle.spike = spike;
}

bool is_time_over(const Run& run) {
  const double limit_seconds = run.config.train.time_limit_minutes * 60;
  return limit_seconds > 0 && run.seconds_of_this_process() >= limit_seconds;
}

/// On rank 0: the newest complete checkpoint from before the spike or, if all remaining ones are
/// within its steps, the oldest; "" = none. Planned checkpoints are preferred, so that a run that
/// was stopped and saved in between returns as far as an uninterrupted one.
std::string checkpoint_before(const Spike& spike, const std::string& folder, int64_t every_steps) {
  std::string planned, any;
  for (const std::string& path : list_checkpoints(folder)) {
    const int64_t step = step_of_checkpoint(path);
    if (step >= (any.empty() ? spike.last_step : spike.first_step)) break;
    if (!is_complete(path)) continue;
    any = path;
    if (step % every_steps == 0) planned = path;
  }
  return planned.empty() ? any : planned;
}

void open_batches(Run& run) {
  run.pipeline.reset();
  OpenPipeline open;
  on_all_ranks(*run.world, [&] { open = plan_batches(run); });
  run.pipeline = open(run.world->make_transport(), run.session->batch_memory);
}

}  // namespace

Findings examine(Lifecycle& lifecycle, Run& run, const StepScalars& scalars, int64_t step) {
  const LambState& lamb = scalars.lamb;
  run.state.lamb.most_skips_in_a_row = lamb.most_skips_in_a_row;
  Findings findings{.new_spikes = lamb.spikes - std::exchange(lifecycle.known_spikes, lamb.spikes),
                    .all_spikes = lifecycle.earlier_spikes + lamb.spikes};
  if (findings.new_spikes > 0) {
    note_spike(lifecycle, run,
               {.first_step = lamb.last_spike_step, .last_step = lamb.last_spike_step});
  }
  // A record of the usual loss ends at the same steps, whichever step the process began at.
  const int64_t every_steps = run.config.train.log_every_steps;
  findings.jump = add_losses(run.state.usual_loss, scalars.stats, step % every_steps == 0,
                             run.config.model.vocab_size);
  if (findings.jump) {
    note_spike(lifecycle, run, {.first_step = step - every_steps + 1, .last_step = step});
  }
  return findings;
}

bool rewinds_on_spikes(const Run& run) {
  return run.config.optimizer.gradient_spike == SpikeRule::kRewind;
}

Stop stop_of_this_rank(const Lifecycle& lifecycle, Run& run) {
  const TrainConfig& train = run.config.train;
  const auto has_enough_samples = [&] {
    return train.max_samples > 0 && run.state.samples_trained >= train.max_samples;
  };
  if (has_enough_samples()) look_up_skips(run);
  if (is_numeric_failure(run)) return Stop::kNumeric;
  if (is_target_reached(run)) return Stop::kTarget;
  if (run.state.step >= train.max_steps || has_enough_samples()) return Stop::kEndOfPlan;
  if (stop_was_requested() || is_time_over(run)) return Stop::kRequeue;
  return lifecycle.spike ? Stop::kSpike : Stop::kNo;
}

std::string rewind(Lifecycle& lifecycle, Run& run) {
  const Spike spike = *std::exchange(lifecycle.spike, std::nullopt);
  if (lifecycle.rewinds >= kMaxRewinds) {
    fail(ExitCode::kNumeric, "the run was rewound ", lifecycle.rewinds,
         " times without reaching a new checkpoint, and step ", grouped_text(spike.last_step),
         " has a spike again. Lower optimizer.base_learning_rate.");
  }
  ++lifecycle.rewinds;
  lifecycle.earlier_spikes += std::exchange(lifecycle.known_spikes, 0);
  run.world->board().enter(run.state.step, RunPhase::kReadWeights);
  const std::string folder = checkpoint_dir(run.run_dir);
  std::string from = text_of_first_rank(*run.world, [&] {
    return checkpoint_before(spike, folder, run.config.checkpoint.every_steps);
  });
  if (from.empty()) from = run.origin;
  const int64_t next_batch = spike.last_step + run.state.batches_left_out;
  restore_state(run, from);
  run.state.batches_left_out = next_batch - run.state.step;
  run.saved_step = -1;             // the saved checkpoint expects other batches
  on_first_rank(*run.world, [&] {  // later checkpoints no longer belong to the run
    set_aside_later_checkpoints(folder, run.state.step);
  });
  open_batches(run);
  run.session->model->reset_stats();
  return concat("returned to step ", grouped_text(run.state.step), " (",
                from.empty() ? "the start of the run" : from, ") and leaves out the ",
                grouped_text(spike.last_step - run.state.step), " batches from there to step ",
                grouped_text(spike.last_step), ": rewind ", lifecycle.rewinds, " of at most ",
                kMaxRewinds, " before the next checkpoint");
}

}  // namespace bertha
