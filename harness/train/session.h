#pragma once

#include <memory>
#include <string>

#include "data/pipeline.h"
#include "harness/backend.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/comm/binding.h"
#include "harness/model/bert.h"
#include "harness/optim/optimizer.h"

namespace bertha {

/// One rank's model, optimizer and backend, wired together and sized for the configured batches.
struct Session {
  Session(const Config& run_config, World& run_world);

  Bert::Parts parts() const {
    return {.device = backend.device.get(),
            .stream = backend.stream.get(),
            .ops = backend.ops.get(),
            .io = io};
  }
  CheckpointParts checkpoint_parts() const;
  /// Weights of checkpoint.init, or fresh ones from the seed.
  void initialize_weights();
  HostAllocator pinned_allocator() const;

  Config config;
  World* world = nullptr;
  BackendChoice choice;
  CoreShare cores;  // taken before any thread starts
  Backend backend;
  DType io;  // of weights, activations and gradients
  Dims dims;
  ParamTable table;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Bert> model;
};

/// Sequences of the largest micro-batch of a rank.
int64_t micro_batch_seqs(const Config& config, int64_t num_ranks);
/// Rows for the largest training or evaluation micro-batch.
BatchCapacity batch_capacity(const Config& config, int64_t num_ranks);

PipelineOptions pipeline_options(const Config& config, int64_t first_step);
EvalOptions eval_options(const Config& config);

/// An independent seed per purpose and rank: a bijective mix, so that no two collide.
uint64_t derive_seed(uint64_t seed, uint64_t purpose, uint64_t rank);

}  // namespace bertha
