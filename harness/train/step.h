#pragma once

#include <cstdint>

#include "data/pipeline/batch.h"
#include "harness/config/choices.h"
#include "harness/model/bert.h"
#include "harness/optim/optimizer.h"
#include "harness/train/timers.h"

namespace bertha {

struct StepSettings {
  LossMeanRule loss_mean = LossMeanRule::kGlobal;
  double nsp_weight = 1.0;    // weight of the next-sentence loss in the sum of both losses
  uint64_t dropout_seed = 0;  // this rank's
  int64_t num_ranks = 1;
};

/// How the losses of one micro-batch are averaged.
LossMean loss_mean_of(const HostBatch& micro, const StepBatch& batch, const StepSettings& settings);

struct StepParts {
  Bert* model = nullptr;
  Optimizer* optimizer = nullptr;
  PhaseTimers* timers = nullptr;
};

/// ONE training step: enqueues all work from the batch to the updated weights; reads nothing back.
void train_step(const StepBatch& batch, const StepSettings& settings, const StepParts& parts);

}  // namespace bertha
