#include "harness/train/eval_and_checkpoint.h"

#include <algorithm>

#include "harness/config/run_plan.h"
#include "harness/report/run_folder.h"
#include "harness/train/device_counters.h"
#include "harness/train/evaluate.h"
#include "harness/train/rewind.h"
#include "kernels/base/seconds_since.h"

namespace bertha {

using Clock = TrainingRun::Clock;

bool is_eval_due(TrainingRun& run) {
  const TrainingState& state = run.state;
  if (run.next_eval >= std::ssize(run.plan.evals)) return false;
  const int64_t due_step = run.plan.evals[static_cast<size_t>(run.next_eval)].step;
  if (state.step - run.known_skips < due_step) return false;
  look_up_skips(run);
  return state.lamb.successful_steps >= due_step;
}

void evaluate_now(TrainingRun& run) {
  // The evaluation uses the model's statistics: those of the steps before have to leave.
  if (finds_spike(run)) return;
  const Session& session = *run.session;
  TrainingState& state = run.state;
  const Clock::time_point start = Clock::now();
  RankBoard& board = run.world->board();
  board.enter(state.step, RunPhase::kEvaluate);
  const double throughput = run.progress->seqs_per_second_since_eval();
  run.reporter->eval_start(state.samples_trained);
  EvalResult result = evaluate(*session.model, run.eval_batches, session.parts(),
                               *session.backend.collectives, [&board] { board.beat(); });
  if (run.config.train.nsp_weight == 0) result.nsp_accuracy.reset();
  const double seconds = seconds_since(start);
  run.progress->exclude(seconds);
  pass_planned_evals(run);
  run.evaluated_step = state.step;
  state.evals.push_back({.step = state.step,
                         .samples = state.samples_trained,
                         .mlm_accuracy = result.mlm_accuracy,
                         .mlm_loss = result.mlm_loss});
  run.reporter->eval_stop({.step = state.step,
                           .samples = state.samples_trained,
                           .mlm_accuracy = result.mlm_accuracy,
                           .mlm_loss = result.mlm_loss,
                           .nsp_accuracy = result.nsp_accuracy,
                           .seconds = seconds,
                           .seqs_per_second_since_last = throughput});
  if (run.config.checkpoint.keep_best && is_best_evaluation(state.evals)) save_now(run);
}

void pass_planned_evals(TrainingRun& run) {
  const auto next = std::ranges::upper_bound(run.plan.evals, run.state.lamb.successful_steps, {},
                                             &PlannedEval::step);
  run.next_eval = next - run.plan.evals.begin();
}

double target_accuracy(const TrainingRun& run) {
  return target_of(run.config.train, run.eval_set.constant_answer_accuracy);
}

bool is_target_reached(const TrainingRun& run) {
  const double target = target_accuracy(run);
  return target > 0 && !run.state.evals.empty() && run.state.evals.back().mlm_accuracy >= target;
}

void save_now(TrainingRun& run) {
  if (finds_spike(run)) return;
  const Clock::time_point start = Clock::now();
  run.world->board().enter(run.state.step, RunPhase::kSave);
  look_up_skips(run);
  run.state.training_seconds = run.training_seconds();
  run.state.joules = run.joules();
  run.last_checkpoint =
      save_checkpoint(checkpoint_dir(run.run_dir), run.state, run.session->checkpoint_parts());
  run.saved_step = run.state.step;
  run.rewinds = 0;
  run.progress->exclude(seconds_since(start));
  run.reporter->event(concat("saved ", run.last_checkpoint));
}

}  // namespace bertha
