#include "harness/train/run.h"

#include <algorithm>

#include "harness/report/run_folder.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

std::optional<double> Run::joules() const {
  const std::optional<double> here = energy ? energy->joules() : std::nullopt;
  if (!here || !earlier_joules) return std::nullopt;
  return *earlier_joules + *here;
}

LambState read_lamb_state(const Session& session) {
  Device& device = session.backend->device();
  Stream& stream = session.backend->stream();
  const Buffer pinned = device.allocate_pinned(static_cast<int64_t>(sizeof(LambState)));
  device.copy(stream, pinned.data(), session.optimizer->state().data, sizeof(LambState));
  stream.wait_on_host();
  return *static_cast<const LambState*>(pinned.data());
}

void look_up_skips(Run& run) {
  run.state.lamb = read_lamb_state(*run.session);
  run.state.fp8_scale_exponents = run.session->model->scale_exponents();
  run.state.samples_trained = run.state.lamb.successful_steps * run.config.train.global_batch_seqs;
}

bool is_numeric_failure(const Run& run) {
  return run.state.lamb.most_skips_in_a_row >= run.config.train.stop_after_skips;
}

OpenPipeline plan_batches(const Run& run) {
  const TrainingState& state = run.state;
  return plan_training_data(run.config, state.step + state.batches_left_out,
                            std::max<int64_t>(run.config.train.max_steps - state.step, 0));
}

bool is_eval_due(Run& run) {
  const TrainingState& state = run.state;
  const auto next =
      std::ranges::upper_bound(run.plan.evals, state.lamb.successful_steps, {}, &PlannedEval::step);
  if (next == run.plan.evals.end() || state.step - state.lamb.skipped_steps < next->step) {
    return false;
  }
  look_up_skips(run);
  return state.lamb.successful_steps >= next->step;
}

bool is_evaluated(const Run& run) {
  return !run.state.evals.empty() && run.state.evals.back().step == run.state.step;
}

EvalRecord evaluate(Run& run) {
  const Run::Clock::time_point start = Run::Clock::now();
  const Session& session = *run.session;
  TrainingState& state = run.state;
  RankBoard& board = run.world->board();
  const EvalResult result = evaluate(*session.model, run.eval_batches, session.parts(),
                                     session.backend->collectives(), [&board] { board.beat(); });
  state.evals.push_back({.step = state.step,
                         .samples = state.samples_trained,
                         .mlm_accuracy = result.mlm_accuracy,
                         .mlm_loss = result.mlm_loss});
  return {.step = state.step,
          .samples = state.samples_trained,
          .mlm_accuracy = result.mlm_accuracy,
          .mlm_loss = result.mlm_loss,
          .nsp_accuracy = run.config.train.nsp_weight == 0 ? std::nullopt : result.nsp_accuracy,
          .seconds = seconds_since(start)};
}

double target_accuracy(const Run& run) {
  return target_of(run.config.train, run.eval_set.constant_answer_accuracy);
}

bool is_target_reached(const Run& run) {
  const double target = target_accuracy(run);
  return target > 0 && !run.state.evals.empty() && run.state.evals.back().mlm_accuracy >= target;
}

void save(Run& run) {
  look_up_skips(run);
  run.state.training_seconds = run.training_seconds();
  run.state.joules = run.joules();
  run.last_checkpoint =
      save_checkpoint(checkpoint_dir(run.run_dir), run.state, run.session->checkpoint_parts());
  run.saved_step = run.state.step;
}

}  // namespace bertha
