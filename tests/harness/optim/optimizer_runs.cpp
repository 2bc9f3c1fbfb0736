#include "tests/harness/optim/optimizer_runs.h"

#include <algorithm>
#include <limits>
#include <random>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/lamb_state.h"
#include "tests/support/thread_collectives.h"

namespace bertha::testing {
namespace {

std::vector<float> values_of(const View& view) {
  return {view.as<float>(), view.as<float>() + view.elements()};
}

/// The flat buffer from the shards of all ranks.
std::vector<float> gather(Collectives& collectives, const View& shard, const RunSpec& spec) {
  const int count = collectives.shard_count();
  std::vector<float> shards(static_cast<size_t>(shard.elements() * count));
  collectives.all_gather(shard,
                         View(shards.data(), DType::kF32, {static_cast<int64_t>(shards.size())}));
  std::vector<float> flat(shards.size());
  for (int index = 0; index < count; ++index) {
    const ShardPlan plan = make_shard_plan(
        spec.table, {.shard = index,
                     .shards = count,
                     .bucket_elements = bucket_elements(spec.config.bucket_mib, DType::kF32)});
    for (const ShardRange& range : plan.ranges) {
      std::copy_n(shards.begin() + index * shard.elements() + range.shard_begin, range.elements,
                  flat.begin() + range.flat_begin);
    }
  }
  return flat;
}

/// Writes the gradient as backward would, from its end to its start.
void write_gradient(Optimizer& optimizer, const std::vector<float>& values, const RunSpec& spec) {
  float* gradient = optimizer.gradients().as<float>();
  std::fill_n(gradient, optimizer.gradients().elements(), 0.0f);
  if (spec.final_from.empty()) {
    std::copy(values.begin(), values.end(), gradient);
    return;
  }
  std::fill_n(gradient, values.size(), std::numeric_limits<float>::quiet_NaN());
  auto end = static_cast<int64_t>(values.size());
  for (const int64_t from : spec.final_from) {
    std::copy(values.begin() + from, values.begin() + end, gradient + from);
    optimizer.gradients_final(from);
    end = from;
  }
  std::copy(values.begin(), values.begin() + end, gradient);
}

}  // namespace

ParamTable table_of(const std::vector<TensorSpec>& tensors) {
  ParamTable table;
  for (const TensorSpec& tensor : tensors) {
    ParamInfo param{.name = tensor.name,
                    .shape = tensor.shape,
                    .decay = tensor.decay,
                    .norm_parts = tensor.norm_parts,
                    .offset = table.elements,
                    .elements = 1};
    for (const int64_t extent : tensor.shape) param.elements *= extent;
    table.elements = (param.offset + param.elements + 63) / 64 * 64;
    table.params.push_back(param);
  }
  return table;
}

RunResult run_updates(Device& device, Collectives& collectives, const RunSpec& spec) {
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Ops> ops = make_cpu_ops(device, *stream);
  Optimizer optimizer(
      spec.config, spec.schedule_steps, spec.table,
      {.device = &device, .stream = stream.get(), .ops = ops.get(), .collectives = &collectives});
  optimizer.set_weights(spec.weights.data());
  const auto& state = *static_cast<const LambState*>(optimizer.state().data);
  RunResult result;
  for (int step = 0; step < spec.steps; ++step) {
    std::vector<float> part = spec.gradient(step, collectives.rank(), collectives.size());
    for (float& value : part) value *= state.loss_scale;
    write_gradient(optimizer, part, spec);
    optimizer.reduce_gradients();
    optimizer.update_weights();
    result.states.push_back(state);
    result.weights_by_step.push_back(values_of(optimizer.weights()));
  }
  result.model_weights = values_of(optimizer.weights());
  result.master = gather(collectives, optimizer.master(), spec);
  result.m = gather(collectives, optimizer.m(), spec);
  result.v = gather(collectives, optimizer.v(), spec);
  return result;
}

std::vector<RunResult> run_on_threads(int ranks, const RunSpec& spec) {
  std::vector<RunResult> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    results[static_cast<size_t>(collectives.rank())] = run_updates(device, collectives, spec);
  });
  return results;
}

std::vector<float> random_flat(const ParamTable& table, uint32_t seed, float deviation) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> flat(static_cast<size_t>(table.elements));
  for (const ParamInfo& param : table.params) {
    for (int64_t i = 0; i < param.elements; ++i) {
      flat[static_cast<size_t>(param.offset + i)] = normal(engine);
    }
  }
  return flat;
}

RunSpec ragged_spec() {
  RunSpec spec;
  spec.config = {.base_learning_rate = 0.03,
                 .warmup_steps = 2,
                 .decay_degree = 1.5,
                 .epsilon = 1e-4,
                 .weight_decay = 0.1,
                 .max_gradient_norm = 2.0,
                 .loss_scale = LossScaling::kDynamic,
                 .initial_loss_scale = 16,
                 .loss_scale_growth_interval_steps = 2};
  spec.table = table_of({{.name = "one", .shape = {1}},
                         {.name = "seven", .shape = {7}, .decay = false},
                         {.name = "large", .shape = {511, 37}},
                         {.name = "qkv", .shape = {33, 65}, .norm_parts = 3},
                         {.name = "qkv_bias", .shape = {99}, .norm_parts = 3},
                         {.name = "gain", .shape = {129}, .decay = false},
                         {.name = "last", .shape = {2, 33}}});
  spec.table.part_begins = {0, spec.table.params[3].offset};
  spec.weights = random_flat(spec.table, 1, 0.4f);
  const ParamTable table = spec.table;
  spec.gradient = [table](int step, int rank, int ranks) {
    // One mean gradient whatever the number of ranks; each rank holds an uneven part of it.
    std::vector<float> mean = random_flat(table, 50 + static_cast<uint32_t>(step), 0.1f);
    const float share =
        2.0f * static_cast<float>(rank + 1) / static_cast<float>(ranks * (ranks + 1));
    for (float& value : mean) value *= share;
    return mean;
  };
  return spec;
}

}  // namespace bertha::testing
