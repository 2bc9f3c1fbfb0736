#include "harness/train/loop.h"

#include <utility>

#include "harness/train/data_check.h"
#include "harness/train/device_counters.h"
#include "harness/train/eval_and_checkpoint.h"
#include "harness/train/finish.h"
#include "harness/train/replica_check.h"
#include "harness/train/rewind.h"
#include "harness/train/signals.h"
#include "harness/train/start.h"
#include "harness/train/step.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

/// Before anything is saved from them.
void check_replicas_if_due(TrainingRun& run) {
  const int64_t every_steps = run.config.train.check_replicas_every_steps;
  const bool is_due = every_steps > 0 && run.state.step % every_steps == 0;
  if (!is_due || run.world->size() == 1) return;
  const std::unique_ptr<Transport> transport = run.world->make_transport();
  check_replicas({.device = run.session->backend.device.get(),
                  .stream = run.session->backend.stream.get(),
                  .optimizer = run.session->optimizer.get(),
                  .table = &run.session->table},
                 *transport);
}

void run_step(TrainingRun& run) {
  report_probe(run, run.probe->poll());
  run.profiled->before_step(run.state.step + 1);
  run.world->board().enter(run.state.step, RunPhase::kWaitForData);
  std::optional<StepBatch> batch;
  const auto asked = TrainingRun::Clock::now();
  end_log_if_data_fail(run, [&] { batch = run.pipeline->next(); });
  const double wait_ms = 1000 * seconds_since(asked);
  if (!batch) {
    run.out_of_data = true;
    return;
  }
  run.world->board().enter(run.state.step, RunPhase::kTrain);
  train_step(*batch, step_settings(run.config, *run.world, run.state.seed),
             {.model = run.session->model.get(),
              .optimizer = run.session->optimizer.get(),
              .timers = run.timers.get()});
  ++run.state.step;
  run.profiled->after_step(run.state.step);
  run.state.samples_trained += batch->num_seqs_global;
  run.progress->count(*batch, wait_ms);
  run.last_batch = std::move(batch);

  capture_probe_if_due(run);
  check_replicas_if_due(run);
  if (is_eval_due(run)) evaluate_now(run);
  const int64_t every_steps = run.config.checkpoint.every_steps;
  const bool is_save_due = every_steps > 0 && run.state.step % every_steps == 0;
  if (is_save_due && run.saved_step != run.state.step) save_now(run);
}

bool is_time_over(const TrainingRun& run) {
  const double limit_seconds = run.config.train.time_limit_minutes * 60;
  return limit_seconds > 0 && run.seconds_of_this_process() >= limit_seconds;
}

/// Why this rank would end the run after this step.
Stop stop_of_this_rank(TrainingRun& run) {
  const TrainConfig& train = run.config.train;
  const auto has_enough_samples = [&] {
    return train.max_samples > 0 && run.state.samples_trained >= train.max_samples;
  };
  if (has_enough_samples()) look_up_skips(run);
  if (is_numeric_failure(run)) return Stop::kNumeric;
  if (is_target_reached(run)) return Stop::kTarget;
  if (run.out_of_data || run.state.step >= train.max_steps || has_enough_samples()) {
    return Stop::kEndOfPlan;
  }
  if (stop_was_requested() || is_time_over(run)) return Stop::kRequeue;
  return run.spike ? Stop::kSpike : Stop::kNo;
}

/// All ranks take the same decision at the end of a step.
Stop next_stop(TrainingRun& run) {
  const Stop stop =
      static_cast<Stop>(run.world->agree_max(static_cast<int>(stop_of_this_rank(run))));
  if (stop == Stop::kNo || stop == Stop::kNumeric || !goes_back(run)) return stop;
  if (!finds_spike(run)) return stop;
  rewind(run);
  return Stop::kNo;
}

}  // namespace

int run_training(const Config& config, World& world, const RunInfo& info) {
  auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60, launcher_ends_job);
  check_data_paths(config);
  TrainingRun run = start_run(config, world, info);
  Collectives& collectives = *run.session->backend.collectives;
  watchdog->set_check([&collectives] { collectives.check(); });
  run.watchdog = std::move(watchdog);
  if (world.agree_max(stop_was_requested() ? 1 : 0) != 0) return stop_before_training(run);
  open_data(run, info);
  try {
    Stop stop = next_stop(run);
    if (run.resumed_step >= 0 && (stop == Stop::kTarget || stop == Stop::kEndOfPlan)) {
      run.reporter->event(
          concat("this run had ended at step ", run.resumed_step,
                 " before: nothing is left to train; for a new run give another folder with "
                 "--output-dir or another log.run_name, or start over in this one with --resume "
                 "never"));
    }
    while (stop == Stop::kNo) {
      run_step(run);
      stop = next_stop(run);
    }
    return finish_run(run, stop);
  } catch (const Error& error) {  // of a save, of replicas or of going back, on all ranks
    if (error.code != ExitCode::kNumeric) throw;
    return finish_numeric(run, error.what());
  }
}

}  // namespace bertha
