#include "harness/train/loop.h"

#include <utility>

#include "harness/train/data_check.h"
#include "harness/train/finish.h"
#include "harness/train/replica_check.h"
#include "harness/train/signals.h"
#include "harness/train/start.h"
#include "harness/train/step.h"
#include "harness/train/training.h"

namespace bertha {
namespace {

/// Reports scalars that have arrived.
void report(Training& training, const std::optional<StepScalars>& scalars) {
  if (!scalars) return;
  auto& [run, telemetry, lifecycle] = training;
  const Findings findings = examine(lifecycle, run, *scalars, telemetry.probed_step);
  write_scalars(telemetry, run, *scalars, findings);
}

void capture_if_due(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  if (!is_capture_due(telemetry, run)) return;
  finish_capture(training);
  capture(telemetry, run, has_record(run));
}

/// Examines all steps so far; afterwards every rank has the same spike, or none. Blocks: the host.
bool finds_spike(Training& training) {
  if (training.telemetry.probed_step == training.run.state.step) {
    finish_capture(training);
  } else {
    capture_now(training, false);
  }
  return training.lifecycle.spike.has_value();
}

/// Compares replicas before anything is saved from them.
void check_replicas_if_due(const Run& run) {
  const int64_t every_steps = run.config.train.check_replicas_every_steps;
  const bool is_due = every_steps > 0 && run.state.step % every_steps == 0;
  if (!is_due || run.world->size() == 1) return;
  const std::unique_ptr<Transport> transport = run.world->make_transport();
  check_replicas(run.session->checkpoint_parts(), *transport);
}

bool is_save_due(const Run& run) {
  const int64_t every_steps = run.config.checkpoint.every_steps;
  return every_steps > 0 && run.state.step % every_steps == 0 && run.saved_step != run.state.step;
}

void run_step(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  report(training, telemetry.probe->poll());
  telemetry.profiled->before_step(run.state.step + 1);
  run.world->board().enter(run.state.step, RunPhase::kWaitForData);
  std::optional<StepBatch> batch;
  const auto asked = Run::Clock::now();
  end_log_if_data_fail(training, [&] { batch = run.pipeline->next(); });
  const double wait_ms = 1000 * seconds_since(asked);
  BERTHA_CHECK(batch, "the pipeline ended before train.max_steps");
  run.world->board().enter(run.state.step, RunPhase::kTrain);
  train_step(*batch, step_settings(run.config, *run.world, run.state.seed),
             {.model = run.session->model.get(),
              .optimizer = run.session->optimizer.get(),
              .timers = telemetry.timers.get()});
  ++run.state.step;
  telemetry.profiled->after_step(run.state.step);
  run.state.samples_trained += batch->num_seqs_global;
  telemetry.progress->count(*batch, wait_ms);
  run.last_batch = std::move(batch);

  capture_if_due(training);
  check_replicas_if_due(run);
  if (is_eval_due(run)) evaluate_now(training);
  if (is_save_due(run)) save_now(training);
}

void go_back(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  const std::string sentence = rewind(lifecycle, run);
  begin_records(telemetry, run);
  telemetry.reporter->warning(sentence);
}

/// The decision of all ranks at the end of a step.
Stop next_stop(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  const Stop stop =
      static_cast<Stop>(run.world->agree_max(static_cast<int>(stop_of_this_rank(lifecycle, run))));
  if (stop == Stop::kNo || stop == Stop::kNumeric || !rewinds_on_spikes(run)) return stop;
  if (!finds_spike(training)) return stop;
  go_back(training);
  return Stop::kNo;
}

void report_nothing_left(const Training& training) {
  training.telemetry.reporter->event(
      concat("this run has already ended at step ", training.run.first_step,
             ", nothing is left to train; for a new run give another folder with --output-dir or "
             "another log.run_name, or start over in this folder with --resume never"));
}

}  // namespace

void finish_capture(Training& training) {
  StepProbe& probe = *training.telemetry.probe;
  if (probe.is_pending()) report(training, probe.wait());
}

void capture_now(Training& training, bool is_logged) {
  finish_capture(training);
  capture(training.telemetry, training.run, is_logged);
  finish_capture(training);
}

void evaluate_now(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  // The evaluation uses the model's statistics, so the steps before it have to be recorded first.
  if (finds_spike(training)) return;
  run.world->board().enter(run.state.step, RunPhase::kEvaluate);
  const double throughput = telemetry.progress->seqs_per_second_since_eval();
  telemetry.reporter->eval_start(run.state.samples_trained);
  EvalRecord record = evaluate(run);
  record.seqs_per_second_since_last = throughput;
  telemetry.progress->exclude(record.seconds);
  telemetry.reporter->eval_stop(record);
  if (run.config.checkpoint.keep_best && is_best_evaluation(run.state.evals)) save_now(training);
}

void save_now(Training& training) {
  auto& [run, telemetry, lifecycle] = training;
  if (finds_spike(training)) return;
  const auto start = Run::Clock::now();
  run.world->board().enter(run.state.step, RunPhase::kSave);
  save(run);
  lifecycle.rewinds = 0;
  telemetry.progress->exclude(seconds_since(start));
  telemetry.reporter->event(concat("saved ", run.last_checkpoint));
}

int run_training(const Config& config, World& world, const RunInfo& info) {
  auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60, launcher_ends_job);
  check_data_paths(config);
  Training training(config, world);
  start_run(training, info);
  auto& [run, telemetry, lifecycle] = training;
  Collectives& collectives = run.session->backend->collectives();
  watchdog->set_check([&collectives] { collectives.check(); });
  lifecycle.watchdog = std::move(watchdog);
  if (world.agree_max(stop_was_requested() ? 1 : 0) != 0) return stop_before_training(training);
  open_data(training, info);
  try {
    Stop stop = next_stop(training);
    const bool is_over = stop == Stop::kTarget || stop == Stop::kEndOfPlan;
    if (is_over && !run.origin.empty()) report_nothing_left(training);
    while (stop == Stop::kNo) {
      run_step(training);
      stop = next_stop(training);
    }
    return finish_run(training, stop);
  } catch (const Error& error) {  // from a save, a replica check or a rewind, on all ranks
    if (error.code != ExitCode::kNumeric) throw;
    return finish_numeric(training, error.what());
  }
}

}  // namespace bertha
