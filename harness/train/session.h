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
  std::optional<BatchRows> capacity = {};  // default: batch_capacity()
  bool time_operations = false;            // see Session::timed_ops
};

/// One rank's model, optimizer and backend, connected and sized for the configured batches. Needs
/// no data; data_source.h opens them.
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
  /// Sets the weights to first_weights(): rank 0 reads the file of checkpoint.init for all ranks;
  /// each rank computes random weights. All ranks call it and fail with the same error.
  void initialize_weights();

  Config config;
  World* world = nullptr;
  RankGpu gpu;
  CoreShare cores;  // determined before any thread starts
  std::unique_ptr<Backend> backend;
  HostAllocator batch_memory;           // a pinned pool
  std::unique_ptr<TimedOps> timed_ops;  // null = operations are not timed
  DType io;                             // dtype of weights, activations and gradients
  Dims dims;
  KernelFacts kernels;  // for logs; graphs: for the model
  ParamTable table;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Bert> model;
  bool has_random_head = false;  // on rank 0, set by initialize_weights()
};

/// The initial weights of a run: from checkpoint.init, or random ones from the seed.
struct FirstWeights {
  std::vector<float> flat;         // [table.elements]
  std::vector<std::string> notes;  // messages for the user
  bool has_random_head = false;    // the masked-token head is random
};
FirstWeights first_weights(const Config& config, const ParamTable& table, const Dims& dims);

/// Number of sequences in a rank's largest micro-batch.
int64_t micro_batch_seqs(const Config& config, int64_t num_ranks);
/// Maximum number of masked tokens per training sequence: data.max_masked_per_seq, or with dynamic
/// masks the number for the longest sequence.
int64_t masked_per_seq(const DataConfig& data);
/// Rows for the largest training or evaluation micro-batch.
BatchRows batch_capacity(const Config& config, int64_t num_ranks);

/// Step settings of a run with this seed; after a resume, state.seed comes from the checkpoint.
StepSettings step_settings(const Config& config, const World& world, uint64_t seed);

// Purposes of derive_seed().
inline constexpr uint64_t kDropoutPurpose = 1;
inline constexpr uint64_t kSyntheticEvalPurpose = 2;

/// An independent seed per purpose and rank: a bijective mix, so that no two collide.
uint64_t derive_seed(uint64_t seed, uint64_t purpose, uint64_t rank);

}  // namespace bertha
