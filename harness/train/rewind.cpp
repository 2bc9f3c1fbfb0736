#include "harness/train/rewind.h"

#include <utility>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/report/run_folder.h"
#include "harness/report/text_format.h"
#include "harness/train/device_counters.h"
#include "harness/train/resume.h"
#include "harness/train/start.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

/// On rank 0: the newest complete checkpoint from before the spike, or where all that are left lie
/// in its steps, the oldest; "" = there is none. Those that were planned come first: a run that was
/// stopped on the way, and saved there, goes back as far as one that was not.
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

void open_batches(TrainingRun& run) {
  run.pipeline.reset();
  OpenPipeline open;
  on_all_ranks(*run.world, [&] { open = plan_batches(run); });
  run.pipeline = open(run.world->make_transport(), run.session->batch_memory);
  run.out_of_data = false;
}

}  // namespace

bool goes_back(const TrainingRun& run) {
  return run.config.optimizer.gradient_spike == GradientSpike::kRewind;
}

bool finds_spike(TrainingRun& run) {
  if (run.probed_state.step != run.state.step) capture_probe(run, false);
  finish_probe(run);
  return run.spike.has_value();
}

void rewind(TrainingRun& run) {
  const Spike spike = *std::exchange(run.spike, std::nullopt);
  if (run.rewinds >= kMostRewinds) {
    fail(ExitCode::kNumeric, "the run has gone back ", run.rewinds,
         " times without reaching a new checkpoint, and step ", grouped_text(spike.last_step),
         " is out of the ordinary again. Lower optimizer.base_learning_rate.");
  }
  ++run.rewinds;
  run.world->board().enter(run.state.step, RunPhase::kReadWeights);
  std::string from = text_of_first_rank(*run.world, [&] {
    return checkpoint_before(spike, checkpoint_dir(run.run_dir), run.config.checkpoint.every_steps);
  });
  if (from.empty()) from = run.origin;
  const int64_t next_batch = spike.last_step + run.state.batches_left_out;
  const LambState held = read_lamb_state(run);
  run.earlier_spikes += held.spikes;
  run.known_spikes = 0;
  put_back(run, from);
  run.state.batches_left_out = next_batch - run.state.step;
  run.saved_step = -1;             // it was saved with other batches to come
  on_first_rank(*run.world, [&] {  // those behind the place are no longer the run's own
    set_aside_later_checkpoints(checkpoint_dir(run.run_dir), run.state.step);
  });
  open_batches(run);
  run.progress->forget(*run.timers);
  run.probed_state = run.state;
  run.session->model->reset_stats();
  run.reporter->warning(
      concat("went back to step ", grouped_text(run.state.step), " (",
             from.empty() ? "the start of the run" : from, ") and leaves out the ",
             grouped_text(spike.last_step - run.state.step), " batches from there to step ",
             grouped_text(spike.last_step), ": ", run.rewinds, " of ", kMostRewinds,
             " times before the next checkpoint"));
}

}  // namespace bertha
