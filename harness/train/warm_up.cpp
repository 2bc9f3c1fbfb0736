#include "harness/train/warm_up.h"

#include "harness/train/data_source.h"
#include "harness/train/evaluate.h"
#include "harness/train/signals.h"
#include "harness/train/step.h"
#include "harness/train/timers.h"

namespace bertha {
namespace {

/// The first step has only longest sequences, later ones a mixture.
StepBatch made_up_batch(const Session& session, int64_t step, int64_t global_seqs,
                        int64_t micro_batches) {
  SyntheticSteps made_up = synthetic_steps(session.config, session.world->size());
  if (step > 0) made_up.lengths = uniform_lengths(session.config.data.max_seq_tokens);
  made_up.global_batch_seqs = global_seqs;
  made_up.micro_batches_per_step = micro_batches;
  return make_synthetic_batch(made_up, plan_synthetic_step(made_up, step), session.world->rank(),
                              session.batch_memory);
}

}  // namespace

void warm_up(Session& session, int64_t steps) {
  const TrainConfig& train = session.config.train;
  World& world = *session.world;
  PhaseTimers timers(session.backend->device(), session.backend->stream());
  const StepSettings settings =
      step_settings(session.config, world, static_cast<uint64_t>(train.seed));
  for (int64_t step = 0; step < steps; ++step) {
    // The caller checks again and ends the run: a scheduler does not wait for long.
    if (world.agree_max(stop_was_requested() ? 1 : 0) != 0) break;
    const StepBatch batch =
        made_up_batch(session, step, train.global_batch_seqs, train.accumulation_steps);
    train_step(
        batch, settings,
        {.model = session.model.get(), .optimizer = session.optimizer.get(), .timers = &timers});
    const int64_t eval_seqs = session.config.eval.batch_seqs * world.size();
    const StepBatch eval = made_up_batch(session, step, eval_seqs, 1);
    evaluate(*session.model, eval.micro_batches, session.parts(), session.backend->collectives());
  }
  session.model->set_scale_exponents({});  // scales of synthetic data are useless
  session.backend->stream().wait_on_host();
}

}  // namespace bertha
