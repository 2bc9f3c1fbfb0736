#include "harness/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/comm/watchdog.h"
#include "harness/config/load.h"
#include "harness/config/run_plan.h"
#include "harness/report/reporter.h"
#include "harness/report/run_folder.h"
#include "harness/report/summary.h"
#include "harness/train/data_check.h"
#include "harness/train/data_position.h"
#include "harness/train/eval_set.h"
#include "harness/train/evaluate.h"
#include "harness/train/post_mortem.h"
#include "harness/train/probe.h"
#include "harness/train/progress.h"
#include "harness/train/session.h"
#include "harness/train/signals.h"
#include "harness/train/step.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Why the loop ended. Higher values win when ranks disagree.
enum class Stop : int { kNo = 0, kEndOfPlan = 1, kTarget = 2, kRequeue = 3, kNumeric = 4 };

/// One training run of one rank, from the first log line to the exit code.
class TrainingRun {
 public:
  TrainingRun(const Config& config, World& world, const RunInfo& info)
      : config_(config),
        plan_(make_run_plan(config)),
        world_(world),
        run_dir_(agree_on_folder(info)) {
    config_.log.run_dir = run_dir_;
    reporter_ = make_reporter(config_, run_dir_, world_.rank());
    reporter_->init_start();
    session_ = std::make_unique<Session>(config_, world_);
    timers_ = std::make_unique<PhaseTimers>(*session_->backend.device, *session_->backend.stream);
    probe_ = std::make_unique<StepProbe>(session_->parts(), *session_->backend.collectives);
    progress_ = std::make_unique<Progress>(session_->dims, world_.size(), config_.train.max_steps);
    start_or_resume();
    reporter_->init_stop(facts());
    reporter_->event(session_->cores.description);
  }

  int run() {
    reporter_->run_start();
    check_data(config_);
    const HostAllocator allocate = session_->pinned_allocator();
    const std::unique_ptr<Transport> transport = world_.make_transport();
    eval_batches_ =
        load_eval_batches(eval_options(config_), world_.rank(), world_.size(), allocate);
    eval_set_ = describe_eval_set(eval_batches_, config_.model.vocab_size, *transport);
    const std::unique_ptr<Pipeline> pipeline =
        make_training_pipeline(pipeline_options(config_, state_.step), *transport, allocate);

    reporter_->data_opened({.train_samples_per_epoch = pipeline->samples_per_epoch(),
                            .eval_samples = eval_set_.num_seqs,
                            .constant_answer_accuracy = eval_set_.constant_answer_accuracy});

    // Not before all else has succeeded: a run that cannot start leaves the folder as it was.
    on_all_ranks(world_, [&] {
      if (world_.rank() == 0) set_aside_later_checkpoints(checkpoints(), resumed_step_);
    });
    watchdog_ =
        std::make_unique<Watchdog>(watchdog_of(world_, config_.train.hang_timeout_minutes * 60));
    Stop stop = next_stop();
    while (stop == Stop::kNo) {
      run_step(*pipeline);
      stop = next_stop();
    }
    return finish(stop);
  }

 private:
  std::string agree_on_folder(const RunInfo& info) const {
    std::string path;
    if (world_.rank() == 0) {
      path = make_run_folder({.run_dir = config_.log.run_dir,
                              .run_name = config_.log.run_name,
                              .resolved_yaml = to_yaml(config_),
                              .command_line = info.command_line,
                              .git_hash = info.git_hash,
                              .world_size = world_.size(),
                              .versions = info.versions,
                              .environment = info.environment})
                 .path;
    }
    return world_.broadcast(path, 0);
  }

  std::string checkpoints() const { return checkpoint_dir(run_dir_); }

  void start_or_resume() {
    std::string from = config_.checkpoint.resume == "never" ? "" : config_.checkpoint.resume;
    if (from == "auto") {
      from.clear();
      on_all_ranks(world_, [&] {
        if (world_.rank() == 0) from = newest_checkpoint(checkpoints()).value_or("");
      });
      from = world_.broadcast(from, 0);
    }
    DataPosition position;
    on_all_ranks(world_, [&] { position = data_position(config_); });
    if (from.empty()) {
      state_.data = position;
      state_.seed = static_cast<uint64_t>(config_.train.seed);
      session_->initialize_weights();
      return;
    }
    state_ = load_checkpoint(from, session_->checkpoint_parts());
    if (state_.seed != static_cast<uint64_t>(config_.train.seed)) {
      fail(ExitCode::kUsage, from, " was trained with train.seed ", state_.seed, ", found ",
           config_.train.seed, "; set train.seed to ", state_.seed,
           " to go on, or checkpoint.resume to never to start anew.");
    }
    on_all_ranks(world_, [&] { check_data_position(state_.data, position, config_, from); });
    first_step_ = state_.step;
    resumed_step_ = state_.step;
    saved_step_ = state_.step;
    last_checkpoint_ = from;
    if (!state_.evals.empty()) evaluated_step_ = state_.evals.back().step;
    if (evaluated_step_ == state_.step) pass_planned_evals();
    earlier_seconds_ = state_.training_seconds;
    reporter_->event(concat("resumed from ", from, " at step ", state_.step));
  }

  RunFacts facts() const {
    RunFacts facts{.world_size = world_.size(),
                   .max_steps = config_.train.max_steps,
                   .first_step = state_.step,
                   .device = session_->backend.device->description()};
    for (const ParamInfo& param : session_->table.params) {
      facts.parameters += param.elements;
      facts.tensor_names.push_back(param.name);
    }
    return facts;
  }

  StepSettings step_settings() const {
    return {.loss_mean =
                config_.train.loss_mean == "local" ? LossMeanRule::kLocal : LossMeanRule::kGlobal,
            .dropout_seed = derive_seed(state_.seed, 1, static_cast<uint64_t>(world_.rank())),
            .num_ranks = world_.size()};
  }

  void run_step(Pipeline& pipeline) {
    report_probe(probe_->poll());
    watchdog_->beat(state_.step, "waiting for data");
    std::optional<StepBatch> batch = pipeline.next();
    if (!batch) {
      out_of_data_ = true;
      return;
    }
    watchdog_->beat(state_.step, "training");
    train_step(*batch, step_settings(),
               {.model = session_->model.get(),
                .optimizer = session_->optimizer.get(),
                .timers = timers_.get()});
    ++state_.step;
    state_.samples_trained += batch->num_seqs_global;
    progress_->count(*batch, pipeline.last_wait_ms());

    if (is_log_due() || state_.step - probed_state_.step >= config_.train.stop_after_skips) {
      capture_probe();
    }
    if (is_eval_due()) evaluate_now();
    if (config_.checkpoint.every_steps > 0 && state_.step % config_.checkpoint.every_steps == 0) {
      save_now();
    }
    last_batch_ = std::move(batch);
  }

  bool is_log_due() const {
    return state_.step % config_.train.log_every_steps == 0 ||
           state_.step == config_.train.max_steps || state_.step == first_step_ + 1;
  }

  /// All ranks capture after the same steps: those with a log line, and others so often that fewer
  /// than twice stop_after_skips updates in a row are skipped before a capture shows it.
  void capture_probe() {
    report_probe(probe_->is_pending() ? std::optional(probe_->wait()) : std::nullopt);
    probe_->capture(*session_->model, *session_->optimizer);
    probed_state_ = state_;
    is_probe_logged_ = is_log_due();
  }

  void report_probe(const std::optional<StepScalars>& scalars) {
    if (!scalars) return;
    most_skips_in_a_row_ = scalars->lamb.most_skips_in_a_row;
    if (is_probe_logged_) reporter_->step(progress_->record(*scalars, probed_state_, *timers_));
  }

  bool is_numeric_failure() const { return most_skips_in_a_row_ >= config_.train.stop_after_skips; }

  /// Counters of the optimizer, as they are now.
  LambState read_lamb_state() {
    Device& device = *session_->backend.device;
    Stream& stream = *session_->backend.stream;
    const Buffer pinned = device.allocate_pinned(static_cast<int64_t>(sizeof(LambState)));
    device.copy(stream, pinned.data(), session_->optimizer->state().data, sizeof(LambState));
    stream.wait_on_host();
    return *static_cast<const LambState*>(pinned.data());
  }

  /// Until then the steps since the last look count as successful ones.
  void look_up_skips() {
    state_.lamb = read_lamb_state();
    known_skips_ = state_.lamb.skipped_steps;
    most_skips_in_a_row_ = state_.lamb.most_skips_in_a_row;
    state_.samples_trained = state_.lamb.successful_steps * config_.train.global_batch_seqs;
  }

  /// The plan counts successful updates: at its boundary the skipped ones are looked up, and the
  /// evaluation waits until they have been made up for.
  bool is_eval_due() {
    if (state_.next_eval >= static_cast<int64_t>(plan_.evals.size())) return false;
    const int64_t due_step = plan_.evals[static_cast<size_t>(state_.next_eval)].step;
    if (state_.step - known_skips_ < due_step) return false;
    look_up_skips();
    return state_.lamb.successful_steps >= due_step;
  }

  /// An evaluation now stands for the points of the plan up to here, but for none after it: a run
  /// that goes on beyond an earlier end evaluates where it would have without that end.
  void pass_planned_evals() {
    const auto num_evals = static_cast<int64_t>(plan_.evals.size());
    while (state_.next_eval < num_evals &&
           plan_.evals[static_cast<size_t>(state_.next_eval)].step <=
               state_.lamb.successful_steps) {
      ++state_.next_eval;
    }
  }

  void evaluate_now() {
    if (probe_->is_pending()) report_probe(probe_->wait());
    const Clock::time_point start = Clock::now();
    watchdog_->beat(state_.step, "evaluating");
    const double throughput = progress_->seqs_per_second_since_eval();
    reporter_->eval_start(state_.samples_trained);
    const EvalResult result = evaluate(*session_->model, eval_batches_, session_->parts(),
                                       *session_->backend.collectives);
    const double seconds = seconds_since(start);
    progress_->exclude(seconds);
    pass_planned_evals();
    evaluated_step_ = state_.step;
    state_.evals.push_back({.step = state_.step,
                            .samples = state_.samples_trained,
                            .mlm_accuracy = result.mlm_accuracy,
                            .mlm_loss = result.mlm_loss});
    reporter_->eval_stop({.step = state_.step,
                          .samples = state_.samples_trained,
                          .mlm_accuracy = result.mlm_accuracy,
                          .mlm_loss = result.mlm_loss,
                          .nsp_accuracy = result.nsp_accuracy,
                          .seconds = seconds,
                          .seqs_per_second_since_last = throughput});
  }

  double target_accuracy() const {
    if (config_.train.target_accuracy <= 0) return 0;
    return std::max(config_.train.target_accuracy,
                    config_.train.target_times_constant * eval_set_.constant_answer_accuracy);
  }

  bool is_target_reached() const {
    return target_accuracy() > 0 && !state_.evals.empty() &&
           state_.evals.back().mlm_accuracy >= target_accuracy();
  }

  /// All ranks take the same decision at the end of a step.
  Stop next_stop() {
    Stop mine = Stop::kNo;
    const double limit_seconds = config_.train.time_limit_minutes * 60;
    const int64_t max_samples = config_.train.max_samples;
    if (max_samples > 0 && state_.samples_trained >= max_samples) look_up_skips();
    if (out_of_data_ || state_.step >= config_.train.max_steps ||
        (max_samples > 0 && state_.samples_trained >= max_samples)) {
      mine = Stop::kEndOfPlan;
    }
    if (is_target_reached()) mine = Stop::kTarget;
    if (stop_was_requested() || (limit_seconds > 0 && seconds_since(started_) >= limit_seconds)) {
      if (mine == Stop::kNo) mine = Stop::kRequeue;
    }
    if (is_numeric_failure()) mine = Stop::kNumeric;
    return static_cast<Stop>(world_.agree_max(static_cast<int>(mine)));
  }

  void save_now() {
    const Clock::time_point start = Clock::now();
    watchdog_->beat(state_.step, "saving");
    look_up_skips();
    state_.training_seconds = earlier_seconds_ + seconds_since(started_);
    last_checkpoint_ = save_checkpoint(checkpoints(), state_, session_->checkpoint_parts());
    saved_step_ = state_.step;
    progress_->exclude(seconds_since(start));
    reporter_->event(concat("saved ", last_checkpoint_));
  }

  int finish(Stop stop) {
    if (probe_->is_pending()) report_probe(probe_->wait());
    // The steps since the last capture count too.
    const LambState lamb = read_lamb_state();
    most_skips_in_a_row_ = lamb.most_skips_in_a_row;
    if (is_numeric_failure()) return finish_numeric(lamb);
    if (stop == Stop::kEndOfPlan && evaluated_step_ != state_.step) evaluate_now();
    if (is_target_reached()) stop = Stop::kTarget;
    if ((stop == Stop::kRequeue || config_.checkpoint.at_end) && saved_step_ != state_.step) {
      save_now();
    }
    const bool succeeded =
        stop == Stop::kTarget || (stop == Stop::kEndOfPlan && config_.train.target_accuracy <= 0);
    reporter_->run_stop(succeeded ? "success" : "aborted", state_.samples_trained);
    reporter_->finish();
    if (stop == Stop::kRequeue) {
      if (world_.rank() == 0) {
        log_line(LogLevel::kInfo, concat("stopped at step ", state_.step,
                                         ", all saved; run the same command again to go on"));
      }
      return static_cast<int>(ExitCode::kRequeue);
    }
    print_summary();
    return static_cast<int>(succeeded ? ExitCode::kSuccess : ExitCode::kTargetMissed);
  }

  int finish_numeric(const LambState& lamb) {
    const std::string path = write_post_mortem({.run_dir = run_dir_,
                                                .session = session_.get(),
                                                .lamb = lamb,
                                                .step = state_.step,
                                                .batch = last_batch_ ? &*last_batch_ : nullptr});
    reporter_->event(concat("stopped: ", lamb.most_skips_in_a_row,
                            " updates in a row had a gradient that is not finite; see ", path));
    reporter_->run_stop("aborted", state_.samples_trained);
    reporter_->finish();
    return static_cast<int>(ExitCode::kNumeric);
  }

  void print_summary() const {
    if (world_.rank() != 0) return;
    // A second start of a finished run trains nothing: then the rate over all its time stands.
    double seqs_per_second = progress_->seqs_per_second();
    if (seqs_per_second <= 0 && state_.training_seconds > 0) {
      seqs_per_second = static_cast<double>(state_.samples_trained) / state_.training_seconds;
    }
    const std::string text = summary_text(
        {.target_accuracy = target_accuracy(),
         .accuracy =
             state_.evals.empty() ? std::nullopt : std::optional(state_.evals.back().mlm_accuracy),
         .baseline_accuracy = eval_set_.constant_answer_accuracy,
         .steps = state_.step,
         .samples = state_.samples_trained,
         .seconds = earlier_seconds_ + seconds_since(started_),
         .seqs_per_second = seqs_per_second,
         .tokens_per_second = progress_->tokens_per_second(),
         .run_dir = run_dir_,
         .checkpoint = last_checkpoint_,
         .plots = config_.log.plots});
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  Config config_;
  RunPlan plan_;
  World& world_;
  std::string run_dir_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<PhaseTimers> timers_;
  std::unique_ptr<StepProbe> probe_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Watchdog> watchdog_;
  std::vector<HostBatch> eval_batches_;
  TrainingState state_;
  TrainingState probed_state_;           // when the pending probe was captured
  std::optional<StepBatch> last_batch_;  // for the post-mortem
  const Clock::time_point started_ = Clock::now();
  double earlier_seconds_ = 0;  // of the parts of the run before a resume
  int64_t first_step_ = 0;
  int64_t resumed_step_ = -1;        // none
  bool is_probe_logged_ = false;     // whether the pending probe becomes a record of the log
  int64_t most_skips_in_a_row_ = 0;  // as far as known
  int64_t known_skips_ = 0;
  int64_t evaluated_step_ = -1;
  int64_t saved_step_ = -1;
  EvalSetFacts eval_set_;
  bool out_of_data_ = false;
  std::string last_checkpoint_;
};

}  // namespace

int run_training(const Config& config, World& world, const RunInfo& info) {
  watch_signals();
  check_data_paths(config);
  return TrainingRun(config, world, info).run();
}

}  // namespace bertha
