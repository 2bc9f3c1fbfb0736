#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "harness/config/config.h"
#include "harness/optim/optimizer.h"
#include "harness/train/step.h"
#include "harness/train/timers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/model/tiny_model.h"
#include "tests/support/thread_collectives.h"

namespace bertha::testing {

inline ModelConfig rig_model(double dropout = 0) {
  return {.name = "rig",
          .layers = 1,
          .hidden = 16,
          .heads = 2,
          .feed_forward = 24,
          .vocab_size = 37,
          .max_positions = 16,
          .hidden_dropout = dropout,
          .attention_dropout = dropout};
}

/// Model, optimizer and timers of one rank, with fresh weights from a fixed seed.
struct TrainingRig {
  TrainingRig(Device& rig_device, Collectives& rig_collectives, const ModelConfig& config,
              double bucket_mib = 100, bool with_fp8 = false, double nsp_weight = 1)
      : fp8(with_fp8),
        device(&rig_device),
        collectives(&rig_collectives),
        stream(rig_device.make_stream()),
        ops(make_cpu_ops(rig_device, *stream)),
        dims(make_dims(config)),
        table(make_param_table(dims, DecayRule::kReference, nsp_weight)),
        optimizer({.base_learning_rate = 0.01, .bucket_mib = bucket_mib}, 100, table,
                  {.device = device,
                   .stream = stream.get(),
                   .ops = ops.get(),
                   .collectives = collectives}),
        model(config, table, {.tokens = 128, .seqs = 16, .masked = 64}, parts()),
        timers(rig_device, *stream) {
    model.bind(optimizer.weights(), optimizer.gradients(),
               [this](int64_t end_element) { optimizer.await_weights(end_element); });
    std::vector<float> flat(static_cast<size_t>(table.elements), 0.0f);
    initialize(table, dims, 0.2, 11, flat.data());
    optimizer.set_weights(flat.data());
  }

  ModelParts parts() {
    return {.device = device, .stream = stream.get(), .ops = ops.get(), .fp8 = fp8};
  }
  StepParts step_parts() { return {.model = &model, .optimizer = &optimizer, .timers = &timers}; }
  const LambState& state() const { return *static_cast<const LambState*>(optimizer.state().data); }
  std::vector<float> weights() const {
    const float* first = optimizer.weights().as<float>();
    return {first, first + table.elements};
  }

  bool fp8;
  Device* device;
  Collectives* collectives;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  Dims dims;
  ParamTable table;
  Optimizer optimizer;
  Bert model;
  PhaseTimers timers;
};

/// Sequences of different lengths and numbers of masked tokens.
inline std::vector<TinySequence> rig_sequences(int64_t count, int64_t first = 0) {
  std::vector<TinySequence> sequences;
  for (int64_t i = first; i < first + count; ++i) {
    TinySequence sequence;
    const int64_t length = 5 + (7 * i) % 9;
    for (int64_t t = 0; t < length; ++t) {
      sequence.word_ids.push_back(static_cast<int32_t>((13 * i + 5 * t + 3) % 37));
      sequence.segment_ids.push_back(t > length / 2 ? 1 : 0);
    }
    for (int64_t m = 0; m <= i % 3; ++m) {
      sequence.masked_positions.push_back(static_cast<int32_t>(1 + m));
      sequence.masked_labels.push_back(static_cast<int32_t>((11 * i + m) % 37));
    }
    sequence.next_sentence_label = static_cast<int32_t>(i % 2);
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

/// A step whose micro-batches are these; the counts of the whole step are over all ranks.
inline StepBatch rig_step(const std::vector<std::vector<TinySequence>>& micro_batches,
                          int64_t num_seqs_global, int64_t num_masked_global) {
  StepBatch batch;
  batch.num_seqs_global = num_seqs_global;
  batch.num_masked_global = num_masked_global;
  for (const auto& sequences : micro_batches) {
    batch.micro_batches.push_back(make_batch(sequences));
    batch.num_tokens_global += batch.micro_batches.back().num_tokens;
  }
  batch.most_tokens_per_rank = batch.num_tokens_global;
  return batch;
}

inline int64_t num_masked(const std::vector<TinySequence>& sequences) {
  int64_t count = 0;
  for (const TinySequence& sequence : sequences) count += std::ssize(sequence.masked_labels);
  return count;
}

/// The rest of `sequences` from `first`, `count` of them.
inline std::vector<TinySequence> part_of(const std::vector<TinySequence>& sequences, int64_t first,
                                         int64_t count) {
  return {sequences.begin() + first, sequences.begin() + first + count};
}

}  // namespace bertha::testing
