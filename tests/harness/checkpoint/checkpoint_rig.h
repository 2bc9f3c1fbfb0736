#pragma once

#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/thread_collectives.h"
#include "tests/support/thread_world.h"
#include "tests/support/transport_world.h"

namespace bertha::testing {

inline Config small_config() {
  Config config;
  config.model = {.layers = 1,
                  .hidden = 16,
                  .heads = 2,
                  .feed_forward = 24,
                  .vocab_size = 37,
                  .max_positions = 16};
  config.checkpoint.keep = 2;
  return config;
}

/// Everything a checkpoint holds, gathered from all ranks.
struct Content {
  std::vector<float> master, m, v, weights;
  TrainingState state;
};

inline TrainingState some_state(int64_t step) {
  TrainingState state{.step = step,
                      .samples_trained = 448 * step,
                      .seed = 0xFEDCBA9876543210ull,
                      .data = {.global_batch_seqs = 448,
                               .order = SampleOrder::kWindowed,
                               .window_shards = 5,
                               .identity = "0123456789abcdef"},
                      .lamb = {.successful_steps = step > 2 ? step - 2 : 0,
                               .skipped_steps = 2,
                               .skips_in_a_row = 1,
                               .steps_since_growth = 7,
                               .loss_scale = 1024.0f,
                               .learning_rate = 1.1e-3f,
                               .gradient_norm = std::numeric_limits<float>::infinity(),
                               .bias_correction_1 = 0.3f,
                               .usual_log_norm = -1.1f,
                               .skip = 1,
                               .norms_seen = 17},
                      .evals = {{.step = 5, .samples = 9, .mlm_accuracy = 0.1, .mlm_loss = 7.5}},
                      .training_seconds = 12.25};
  return state;
}

/// Runs `work` as `ranks` ranks, each with an optimizer of the given config.
inline void as_ranks(int ranks, const Config& config,
                     const std::function<void(const CheckpointParts& parts)>& work) {
  ThreadWorld threads(ranks);
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    TransportWorld world(threads.transport(collectives.rank()));
    const Dims dims = make_dims(config.model);
    const ParamTable table = make_param_table(dims, DecayRule::kReference);
    const auto stream = device.make_stream();
    const auto ops = make_cpu_ops(device, *stream);
    Optimizer optimizer(
        config.optimizer, 100, table,
        {.device = &device, .stream = stream.get(), .ops = ops.get(), .collectives = &collectives});
    work({.world = &world,
          .device = &device,
          .stream = stream.get(),
          .optimizer = &optimizer,
          .table = &table,
          .dims = dims,
          .config = &config});
  });
}

/// Calls `use` with the place of each element of the rank in its shard and in the flat buffer.
inline void for_each_element(const CheckpointParts& parts,
                             const std::function<void(int64_t in_shard, int64_t in_flat)>& use) {
  for (const ShardRange& range : parts.optimizer->shard_ranges()) {
    for (int64_t i = 0; i < range.elements; ++i) {
      if (range.flat_begin + i >= parts.table->elements) break;
      use(range.shard_begin + i, range.flat_begin + i);
    }
  }
}

inline void fill_randomly(const CheckpointParts& parts) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> flat(static_cast<size_t>(parts.table->elements), 0.0f);
  for (const ParamInfo& param : parts.table->params) {
    // Padding rows of the vocabulary stay zero: they do not travel under foreign names.
    const int64_t rows = param.shape[0] == parts.dims.V ? parts.dims.C : param.shape[0];
    const int64_t filled = param.elements / param.shape[0] * rows;
    for (int64_t i = 0; i < filled; ++i)
      flat[static_cast<size_t>(param.offset + i)] = normal(random);
  }
  parts.optimizer->set_weights(flat.data());
  for_each_element(parts, [&](int64_t in_shard, int64_t in_flat) {
    parts.optimizer->m().as<float>()[in_shard] = 0.5f * static_cast<float>(in_flat);
    parts.optimizer->v().as<float>()[in_shard] = 1.0f / static_cast<float>(in_flat + 1);
  });
}

inline void gather(const CheckpointParts& parts, const TrainingState& state, Content& content) {
  const auto count = static_cast<size_t>(parts.table->elements);
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  content.master.resize(count);
  content.m.resize(count);
  content.v.resize(count);
  const Optimizer& o = *parts.optimizer;
  for_each_element(parts, [&](int64_t in_shard, int64_t in_flat) {
    const auto at = static_cast<size_t>(in_flat);
    content.master[at] = o.master().as<float>()[in_shard];
    content.m[at] = o.m().as<float>()[in_shard];
    content.v[at] = o.v().as<float>()[in_shard];
  });
  content.weights.assign(o.weights().as<float>(), o.weights().as<float>() + count);
  content.state = state;
}

inline Config config_with_buckets(double bucket_mib) {
  Config config = small_config();
  config.optimizer.bucket_mib = bucket_mib;
  return config;
}

inline std::string save(const std::string& folder, int ranks, int64_t step,
                        Content* content = nullptr, const Config& config = small_config()) {
  std::string path;
  as_ranks(ranks, config, [&](const CheckpointParts& parts) {
    fill_randomly(parts);
    const std::string saved = save_checkpoint(folder, some_state(step), parts);
    if (parts.world->rank() == 0) path = saved;
    if (content != nullptr) gather(parts, some_state(step), *content);
  });
  return path;
}

inline Content load(const std::string& path, int ranks, const Config& config = small_config()) {
  Content content;
  as_ranks(ranks, config, [&](const CheckpointParts& parts) {
    const TrainingState state = load_checkpoint(path, parts);
    gather(parts, state, content);
  });
  return content;
}

}  // namespace bertha::testing
