#include "harness/train/step.h"

namespace bertha {
namespace {

void update_scales(const StepParts& parts) {
  const View maxima = parts.model->fp8_maxima();
  if (maxima.elements() == 0) return;
  parts.optimizer->max_over_ranks(maxima);
  parts.model->update_scales(parts.optimizer->gradient_sum_of_squares());
}

/// Finds scales for the first step with fp8: runs its first micro-batch through the model in io,
/// only for the maxima. The step itself overwrites the gradients.
void find_first_scales(const StepBatch& batch, const StepSettings& settings, uint64_t micro_step,
                       const StepParts& parts) {
  const HostBatch& micro = batch.micro_batches.front();
  parts.model->begin_step();
  parts.model->set_random(settings.dropout_seed, micro_step);
  parts.model->upload(micro);
  parts.model->forward_train(loss_mean_of(micro, batch, settings), parts.optimizer->state());
  parts.model->backward();
  update_scales(parts);
  parts.model->reset_stats();  // no earlier step has added to them
}

}  // namespace

LossMean loss_mean_of(const HostBatch& micro, const StepBatch& batch,
                      const StepSettings& settings) {
  if (settings.loss_mean == LossMeanRule::kGlobal) {
    return {.masked = batch.num_masked_global,
            .seqs = batch.num_seqs_global,
            .nsp_weight = settings.nsp_weight};
  }
  const int64_t parts = settings.num_ranks * static_cast<int64_t>(batch.micro_batches.size());
  return {.masked = micro.num_masked,
          .seqs = micro.num_seqs,
          .numerator = 1.0 / static_cast<double>(parts),
          .nsp_weight = settings.nsp_weight};
}

void train_step(const StepBatch& batch, const StepSettings& settings, const StepParts& parts) {
  Bert& model = *parts.model;
  Optimizer& optimizer = *parts.optimizer;
  PhaseTimers& timers = *parts.timers;
  const ProfilerRange range(timers.device(), "step");

  // Each micro-batch of the run has its own dropout counter.
  uint64_t micro_step = static_cast<uint64_t>(batch.step) * batch.micro_batches.size();

  timers.begin(Phase::kForward);
  if (model.needs_scales()) find_first_scales(batch, settings, micro_step, parts);
  model.begin_step();
  for (const HostBatch& micro : batch.micro_batches) {
    timers.begin(Phase::kForward);
    model.set_random(settings.dropout_seed, micro_step++);
    model.upload(micro);
    model.forward_train(loss_mean_of(micro, batch, settings), optimizer.state());
    timers.begin(Phase::kBackward);
    if (&micro != &batch.micro_batches.back()) {
      model.backward();
    } else {  // reductions over ranks begin while backward of earlier layers is still running
      model.backward([&](int64_t from_element) { optimizer.gradients_final(from_element); });
    }
  }
  timers.begin(Phase::kCommunication);
  optimizer.reduce_gradients();
  update_scales(parts);
  timers.begin(Phase::kOptimizer);
  optimizer.update_weights();
  model.weights_changed();
  timers.end();
}

}  // namespace bertha
