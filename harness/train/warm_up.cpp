#include "harness/train/warm_up.h"

#include "data/pipeline/synthetic_steps.h"
#include "harness/train/evaluate.h"
#include "harness/train/step.h"
#include "harness/train/timers.h"

namespace bertha {
namespace {

constexpr int64_t kShortest = 8;  // tokens of a made-up sequence

/// All lengths equally often. The first step has the longest only, the next ones a mixture.
LengthHistogram lengths_of(int64_t step, int64_t max_seq_tokens) {
  if (step == 0) return {};
  LengthHistogram lengths(static_cast<size_t>(max_seq_tokens + 1), 1);
  for (int64_t tokens = 0; tokens < kShortest && tokens < max_seq_tokens; ++tokens) {
    lengths[static_cast<size_t>(tokens)] = 0;
  }
  return lengths;
}

StepBatch made_up_batch(const Session& session, int64_t step, int64_t global_seqs,
                        int64_t micro_batches) {
  const Config& config = session.config;
  const SyntheticSteps made_up{.lengths = lengths_of(step, config.data.max_seq_tokens),
                               .max_seq_tokens = config.data.max_seq_tokens,
                               .max_masked_per_seq = config.data.max_masked_per_seq,
                               .vocab_size = config.model.vocab_size,
                               .global_batch_seqs = global_seqs,
                               .micro_batches_per_step = micro_batches,
                               .exchange = parse_exchange(config.data.exchange_padding),
                               .seed = static_cast<uint64_t>(config.train.seed),
                               .num_ranks = session.world->size()};
  return make_synthetic_batch(made_up, plan_synthetic_step(made_up, step), session.world->rank(),
                              session.pinned_allocator());
}

}  // namespace

void warm_up(Session& session, int64_t steps) {
  const TrainConfig& train = session.config.train;
  PhaseTimers timers(*session.backend.device, *session.backend.stream);
  const StepSettings settings =
      step_settings(session.config, *session.world, static_cast<uint64_t>(train.seed));
  for (int64_t step = 0; step < steps; ++step) {
    const StepBatch batch =
        made_up_batch(session, step, train.global_batch_seqs, train.accumulation_steps);
    train_step(
        batch, settings,
        {.model = session.model.get(), .optimizer = session.optimizer.get(), .timers = &timers});
    const int64_t eval_seqs = session.config.eval.batch_seqs * session.world->size();
    const StepBatch eval = made_up_batch(session, step, eval_seqs, 1);
    evaluate(*session.model, eval.micro_batches, session.parts(), *session.backend.collectives);
  }
  session.model->set_scale_exponents({});  // those of made-up data are of no use
  session.backend.stream->wait_on_host();
}

}  // namespace bertha
