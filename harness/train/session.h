#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/batch.h"
#include "harness/backend.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/comm/binding.h"
#include "harness/model/bert.h"
#include "harness/optim/optimizer.h"
#include "harness/report/run_records.h"
#include "harness/train/precision.h"
#include "harness/train/step.h"
#include "harness/train/timed_ops.h"

namespace bertha {

struct SessionOptions {
  std::optional<BatchRows> capacity = {};  // of the model; default: batch_capacity()
  bool time_operations = false;            // each one, see Session::timed_ops
};

/// One rank's model, optimizer and backend, wired together and sized for the configured batches.
/// Needs no data; those are opened by data_source.h.
struct Session {
  Session(const Config& run_config, World& run_world, const SessionOptions& options = {});

  ModelParts parts() const {
    return {.device = &backend->device(),
            .stream = &backend->stream(),
            .ops = &ops(),
            .io = io,
            .fp8 = has_fp8_gemms(config.train),
            .graphs = kernels.graphs};
  }
  Ops& ops() const { return timed_ops ? *timed_ops : backend->ops(); }
  CheckpointParts checkpoint_parts() const;
  /// Sets the weights to first_weights(): rank 0 reads the file of checkpoint.init for all; random
  /// weights are computed by each rank. All ranks call it, and fail with the same error.
  void initialize_weights();

  Config config;
  World* world = nullptr;
  RankGpu gpu;
  CoreShare cores;  // taken before any thread starts
  std::unique_ptr<Backend> backend;
  HostAllocator batch_memory;           // a pinned pool
  std::unique_ptr<TimedOps> timed_ops;  // null = operations are not timed
  DType io;                             // of weights, activations and gradients
  Dims dims;
  KernelFacts kernels;  // of these passes: for logs, and graphs for the model
  ParamTable table;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Bert> model;
  bool has_random_head = false;  // on the first rank; of initialize_weights()
};

/// The weights a run begins with: from checkpoint.init, or fresh ones from the seed.
struct FirstWeights {
  std::vector<float> flat;         // [table.elements]
  std::vector<std::string> notes;  // what the user should know of them
  bool has_random_head = false;    // for masked tokens
};
FirstWeights first_weights(const Config& config, const ParamTable& table, const Dims& dims);

/// Sequences of the largest micro-batch of a rank.
int64_t micro_batch_seqs(const Config& config, int64_t num_ranks);
/// Most masked tokens of a training sequence: data.max_masked_per_seq, or with dynamic masks what
/// the fraction gives of the longest one.
int64_t masked_per_seq(const DataConfig& data);
/// Rows for the largest training or evaluation micro-batch.
BatchRows batch_capacity(const Config& config, int64_t num_ranks);

/// How a run with this seed trains; state.seed may come from the checkpoint it went on from.
StepSettings step_settings(const Config& config, const World& world, uint64_t seed);

// Purposes of derive_seed().
inline constexpr uint64_t kDropoutPurpose = 1;
inline constexpr uint64_t kSyntheticEvalPurpose = 2;

/// An independent seed per purpose and rank: a bijective mix, so that no two collide.
uint64_t derive_seed(uint64_t seed, uint64_t purpose, uint64_t rank);

}  // namespace bertha
