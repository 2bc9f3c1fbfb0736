#include "harness/train/finish.h"

#include <exception>
#include <iostream>
#include <optional>

#include "harness/report/summary.h"
#include "harness/report/text_format.h"
#include "harness/train/post_mortem.h"
#include "kernels/base/log.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

/// joules: Run::joules(), if known.
RunEnd end_log(const Run& run, Reporter& reporter, ExitCode exit_code,
               const std::optional<double>& joules) {
  RunEnd end{.status = exit_code == ExitCode::kSuccess ? "success" : "aborted",
             .samples = run.state.samples_trained,
             .exit_code = exit_code,
             .joules = joules};
  reporter.run_stop(end);
  reporter.finish();
  return end;
}

void print_summary(const Run& run, const Telemetry& telemetry, const RunEnd& end) {
  if (run.world->rank() != 0) return;
  const TrainingState& state = run.state;
  // A second start of a finished run trains nothing; its rate is that of the whole run.
  double seqs_per_second = telemetry.progress->seqs_per_second();
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
       .tokens_per_second = telemetry.progress->tokens_per_second(),
       .joules_per_sample = end.joules_per_sample(),
       .run_dir = run.run_dir,
       .config = telemetry.resolved_config,
       .checkpoint = run.last_checkpoint,
       .max_steps = run.config.train.max_steps,
       .max_samples = run.config.train.max_samples,
       .schedule_steps = run.plan.schedule_steps,
       .has_schedule_steps = run.config.optimizer.schedule_steps > 0,
       .has_initial_weights = !run.config.checkpoint.init.empty()});
  std::cout << text << std::flush;
}

/// Ends the log after a failure. The failure itself matters most, so an error while closing the log
/// only adds a warning. All ranks call it.
void abort_log(Training& training, const Error& reason) {
  const std::optional<double> joules =
      training.run.joules();  // a collective, so before calls that may fail on one rank
  Reporter& reporter = *training.telemetry.reporter;
  try {
    finish_capture(training);
    reporter.failure(concat("stopped: ", reason.what()));
    end_log(training.run, reporter, reason.code, joules);
  } catch (const std::exception& error) {
    log_line(LogLevel::kWarning,
             concat("the log of the run could not be completed: ", error.what()));
  }
}

/// Logs the maximum over all ranks. All ranks call it.
void report_memory(const Run& run, Telemetry& telemetry) {
  note_memory(telemetry, run);
  constexpr int64_t kMiB = 1 << 20;
  const int max_mib = run.world->agree_max(static_cast<int>(telemetry.peak_memory_bytes / kMiB));
  telemetry.reporter->event(
      concat("peak memory of a rank's device: ", bytes_text(int64_t{max_mib} * kMiB)));
}

int log_resume_hint(const Run& run) {
  const std::string where = run.state.step == 0 ? "before the first step, nothing to save"
                                                : concat("at step ", grouped_text(run.state.step),
                                                         ", all saved in ", run.run_dir);
  if (run.world->rank() == 0) {
    log_line(LogLevel::kInfo,
             concat("stopped ", where, "; run the same command again to continue"));
  }
  return static_cast<int>(ExitCode::kRequeue);
}

}  // namespace

int finish_numeric(Training& training, const std::string& reason) {
  auto& [run, telemetry, lifecycle] = training;
  const std::string path = write_post_mortem(run, read_lamb_state(*run.session));
  telemetry.reporter->event(concat("stopped: ", reason, " See ", path));
  end_log(run, *telemetry.reporter, ExitCode::kNumeric, run.joules());
  return static_cast<int>(ExitCode::kNumeric);
}

int stop_before_training(Training& training) {
  training.telemetry.reporter->event("stopped before the first step");
  training.telemetry.reporter->finish();
  return log_resume_hint(training.run);
}

int finish_run(Training& training, Stop stop) {
  auto& [run, telemetry, lifecycle] = training;
  telemetry.profiled->stop();
  finish_capture(training);
  if (telemetry.progress->has_open_steps()) capture_now(training, true);
  // The steps since the last capture count too.
  const LambState lamb = read_lamb_state(*run.session);
  run.state.lamb.most_skips_in_a_row = lamb.most_skips_in_a_row;
  if (is_numeric_failure(run)) {
    return finish_numeric(
        training,
        concat(lamb.most_skips_in_a_row,
               " consecutive updates were skipped: their gradient was not finite",
               run.config.optimizer.gradient_spike != SpikeRule::kWarn ? " or its norm a spike."
                                                                       : "."));
  }

  if (stop == Stop::kEndOfPlan && !is_evaluated(run)) evaluate_now(training);
  if (is_target_reached(run)) stop = Stop::kTarget;
  // Initial weights are not saved: the next start computes them again.
  const bool saves = stop == Stop::kRequeue ? run.state.step > 0 : run.config.checkpoint.at_end;
  if (saves && run.saved_step != run.state.step) save_now(training);

  const bool succeeded =
      stop == Stop::kTarget || (stop == Stop::kEndOfPlan && run.config.train.target_accuracy <= 0);
  run.world->board().enter(run.state.step, RunPhase::kFinish);
  report_memory(run, telemetry);
  const ExitCode exit_code = stop == Stop::kRequeue ? ExitCode::kRequeue
                             : succeeded            ? ExitCode::kSuccess
                                                    : ExitCode::kTargetMissed;
  const RunEnd end = end_log(run, *telemetry.reporter, exit_code, run.joules());
  if (stop == Stop::kRequeue) return log_resume_hint(run);
  print_summary(run, telemetry, end);
  return static_cast<int>(exit_code);
}

void end_log_if_data_fail(Training& training, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code == ExitCode::kData || error.code == ExitCode::kUsage) {
      abort_log(training, error);
      training.run.world->barrier();
    }
    throw;
  }
}

}  // namespace bertha
