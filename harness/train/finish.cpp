#include "harness/train/finish.h"

#include <exception>
#include <iostream>
#include <optional>

#include "harness/report/summary.h"
#include "harness/report/text_format.h"
#include "harness/train/device_counters.h"
#include "harness/train/eval_and_checkpoint.h"
#include "harness/train/post_mortem.h"
#include "kernels/base/log.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

/// joules: of TrainingRun::joules().
RunEnd end_log(TrainingRun& run, ExitCode exit_code, const std::optional<double>& joules) {
  RunEnd end{.status = exit_code == ExitCode::kSuccess ? "success" : "aborted",
             .samples = run.state.samples_trained,
             .exit_code = exit_code,
             .joules = joules};
  run.reporter->run_stop(end);
  run.reporter->finish();
  return end;
}

void print_summary(const TrainingRun& run, const RunEnd& end) {
  if (run.world->rank() != 0) return;
  const TrainingState& state = run.state;
  // A second start of a finished run trains nothing: then the rate over all its time is kept.
  double seqs_per_second = run.progress->seqs_per_second();
  if (seqs_per_second <= 0 && state.training_seconds > 0) {
    seqs_per_second = static_cast<double>(state.samples_trained) / state.training_seconds;
  }
  const std::string text = summary_text(
      {.target_accuracy = target_accuracy(run),
       .accuracy =
           state.evals.empty() ? std::nullopt : std::optional(state.evals.back().mlm_accuracy),
       .baseline_accuracy = run.eval_set.constant_answer_accuracy,
       .steps = state.step,
       .samples = end.samples,
       .seconds = run.training_seconds(),
       .seqs_per_second = seqs_per_second,
       .tokens_per_second = run.progress->tokens_per_second(),
       .joules_per_sample = end.joules_per_sample(),
       .run_dir = run.run_dir,
       .config = run.resolved_config,
       .checkpoint = run.last_checkpoint,
       .max_steps = run.config.train.max_steps,
       .max_samples = run.config.train.max_samples,
       .schedule_steps = run.plan.schedule_steps,
       .has_schedule_steps = run.config.optimizer.schedule_steps > 0});
  std::cout << text << std::flush;
}

/// The failure itself is what the user has to know: one more of the log only adds a warning. All
/// ranks call it.
void abort_log(TrainingRun& run, const Error& reason) {
  const std::optional<double> joules = run.joules();  // before what may fail on one rank alone
  try {
    finish_probe(run);
    run.reporter->failure(concat("stopped: ", reason.what()));
    end_log(run, reason.code, joules);
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarning,
             concat("the log of the run stays without its end: ", error.what()));
  }
}

/// The most of all ranks, in the log. All ranks call it.
void report_memory(TrainingRun& run) {
  note_memory(run);
  constexpr int64_t kMiB = 1 << 20;
  const int most_mib = run.world->agree_max(static_cast<int>(run.peak_memory_bytes / kMiB));
  run.reporter->event(
      concat("peak memory of a rank's device: ", bytes_text(int64_t{most_mib} * kMiB)));
}

int say_how_to_go_on(const TrainingRun& run) {
  const std::string where = run.state.step == 0 ? "before the first step, nothing to save"
                                                : concat("at step ", grouped_text(run.state.step),
                                                         ", all saved in ", run.run_dir);
  if (run.world->rank() == 0) {
    log_line(LogLevel::kInfo, concat("stopped ", where, "; run the same command again to go on"));
  }
  return static_cast<int>(ExitCode::kRequeue);
}

}  // namespace

int finish_numeric(TrainingRun& run, const std::string& reason) {
  const std::string path = write_post_mortem(run, read_lamb_state(run));
  run.reporter->event(concat("stopped: ", reason, " See ", path));
  end_log(run, ExitCode::kNumeric, run.joules());
  return static_cast<int>(ExitCode::kNumeric);
}

int stop_before_training(TrainingRun& run) {
  run.reporter->event("stopped before the first step");
  run.reporter->finish();
  return say_how_to_go_on(run);
}

int finish_run(TrainingRun& run, Stop stop) {
  run.profiled->stop();
  record_last_steps(run);
  // The steps since the last capture count too.
  const LambState lamb = read_lamb_state(run);
  run.most_skips_in_a_row = lamb.most_skips_in_a_row;
  if (is_numeric_failure(run)) {
    return finish_numeric(
        run,
        concat(lamb.most_skips_in_a_row,
               " updates in a row were skipped: their gradient was not finite",
               run.config.optimizer.gradient_spike != GradientSpike::kWarn ? " or its norm a spike."
                                                                           : "."));
  }

  if (stop == Stop::kEndOfPlan && run.evaluated_step != run.state.step) evaluate_now(run);
  if (is_target_reached(run)) stop = Stop::kTarget;
  // Fresh weights need no saving: the next start makes them again.
  const bool save = stop == Stop::kRequeue ? run.state.step > 0 : run.config.checkpoint.at_end;
  if (save && run.saved_step != run.state.step) save_now(run);

  const bool succeeded =
      stop == Stop::kTarget || (stop == Stop::kEndOfPlan && run.config.train.target_accuracy <= 0);
  run.world->board().enter(run.state.step, RunPhase::kFinish);
  report_memory(run);
  const ExitCode exit_code = stop == Stop::kRequeue ? ExitCode::kRequeue
                             : succeeded            ? ExitCode::kSuccess
                                                    : ExitCode::kTargetMissed;
  const RunEnd end = end_log(run, exit_code, run.joules());
  if (stop == Stop::kRequeue) return say_how_to_go_on(run);
  print_summary(run, end);
  return static_cast<int>(exit_code);
}

void end_log_if_data_fail(TrainingRun& run, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code == ExitCode::kData || error.code == ExitCode::kUsage) {
      abort_log(run, error);
      run.world->barrier();
    }
    throw;
  }
}

}  // namespace bertha
