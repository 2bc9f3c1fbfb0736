#include "harness/train/session.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "data/pipeline/dynamic_masks.h"
#include "data/random/draws.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/config/run_plan.h"
#include "harness/model/fp8_state.h"
#include "harness/train/pinned_pool.h"
#include "harness/train/precision.h"
#include "kernels/base/divide.h"
#include "kernels/base/log.h"
#include "kernels/ops/attention.h"

namespace bertha {
namespace {

KernelFacts describe_kernels(const Session& session, const SessionOptions& options) {
  const Config& config = session.config;
  const bool fp8 = has_fp8_gemms(config.train);
  const AttentionCall call{.io = session.io,
                           .head_size = session.dims.D,
                           .max_seq_tokens = session.dims.S,
                           .has_dropout = config.model.attention_dropout > 0};
  return {
      .attention = session.backend->attention_kernels(call),
      .gelu_gemms = session.backend->gelu_gemm_kernels(
          {.io = session.io, .hidden = session.dims.H, .feed_forward = session.dims.F, .fp8 = fp8}),
      .fp8_gemms = fp8 ? fp8_gemms(session.dims) : "",
      .graphs = !options.time_operations && config.log.profile_steps.empty() &&
                session.backend->can_record_passes(call)};
}

/// Sets a next-sentence head that is never trained to zero, so that has_next_sentence_head() can
/// recognize it in exported weights.
void clear_unused_sentence_head(const ParamTable& table, float* flat) {
  for (const ParamInfo& param : table.params) {
    if (param.name == "nsp.weight") std::fill_n(flat + param.offset, param.elements, 0.0f);
  }
}

}  // namespace

Session::Session(const Config& run_config, World& run_world, const SessionOptions& options)
    : config(run_config),
      world(&run_world),
      gpu(choose_gpu(run_config.train.backend, run_world)),
      cores(core_share(run_world)),
      backend(make_backend(gpu, run_config.cuda,
                           cores.threads_for(run_config.train.threads_per_rank), run_world,
                           choose_grouping(run_config.optimizer.shard_group, run_world))),
      batch_memory(make_pinned_pool(backend->device())),
      timed_ops(options.time_operations ? std::make_unique<TimedOps>(
                                              backend->ops(), backend->device(), backend->stream())
                                        : nullptr),
      io(choose_io(run_config, backend->device())),
      dims(make_dims(run_config.model, run_config.data.max_seq_tokens)),
      kernels(describe_kernels(*this, options)),
      table(make_param_table(dims, run_config.optimizer.decay_rule, run_config.train.nsp_weight)) {
  optimizer =
      std::make_unique<Optimizer>(config.optimizer, make_run_plan(config).schedule_steps, table,
                                  Optimizer::Parts{.device = &backend->device(),
                                                   .stream = &backend->stream(),
                                                   .ops = &ops(),
                                                   .collectives = &backend->collectives(),
                                                   .io = io});
  model = std::make_unique<Bert>(config.model, table,
                                 options.capacity.value_or(batch_capacity(config, world->size())),
                                 parts());
  model->set_last_layer(config.train.last_layer);
  model->bind(
      optimizer->weights(), optimizer->gradients(),
      [o = optimizer.get()](int64_t end_element) { o->await_weights(end_element); },
      optimizer->bucket_begins());
}

CheckpointParts Session::checkpoint_parts() const {
  return {.world = world,
          .device = &backend->device(),
          .stream = &backend->stream(),
          .optimizer = optimizer.get(),
          .table = &table,
          .dims = dims,
          .config = &config};
}

void Session::initialize_weights() {
  const bool from_file = !config.checkpoint.init.empty();
  FirstWeights first;
  on_all_ranks(*world, [&] {
    if (from_file && world->rank() != 0) {
      first.flat.resize(static_cast<size_t>(table.elements));
    } else {
      first = first_weights(config, table, dims);
    }
  });
  if (from_file) world->broadcast_bytes(std::as_writable_bytes(std::span(first.flat)), 0);
  for (const std::string& note : first.notes) log_line(LogLevel::kWarning, note);
  has_random_head = first.has_random_head;
  optimizer->set_weights(first.flat.data());
}

FirstWeights first_weights(const Config& config, const ParamTable& table, const Dims& dims) {
  FirstWeights first;
  first.flat.assign(static_cast<size_t>(table.elements), 0.0f);
  bool has_fresh_sentence_head = true;
  if (config.checkpoint.init.empty()) {
    initialize(table, dims, config.model.init_stddev, static_cast<uint64_t>(config.train.seed),
               first.flat.data());
  } else {
    const LoadedWeights loaded =
        load_weights(weight_request(config), config.model, table, first.flat.data());
    first.notes = loaded.notes;
    first.has_random_head = std::ranges::count(loaded.fresh, ModelPart::kMaskedTokenHead) > 0;
    has_fresh_sentence_head = std::ranges::count(loaded.fresh, ModelPart::kSentenceHead) > 0;
  }
  if (has_fresh_sentence_head && config.train.nsp_weight == 0) {
    clear_unused_sentence_head(table, first.flat.data());
  }
  return first;
}

int64_t micro_batch_seqs(const Config& config, int64_t num_ranks) {
  const int64_t slots = num_ranks * config.train.accumulation_steps;
  return ceil_div(config.train.global_batch_seqs, slots);
}

int64_t masked_per_seq(const DataConfig& data) {
  return data.masking == Masking::kDynamic ? num_masks(data.max_seq_tokens, data.masked_fraction)
                                           : data.max_masked_per_seq;
}

BatchRows batch_capacity(const Config& config, int64_t num_ranks) {
  const int64_t train_seqs = micro_batch_seqs(config, num_ranks);
  const int64_t eval_seqs = config.eval.batch_seqs;
  const int64_t seqs = std::max(train_seqs, eval_seqs);
  return {.tokens = seqs * config.data.max_seq_tokens,
          .seqs = seqs,
          .masked = std::max(train_seqs * masked_per_seq(config.data),
                             eval_seqs * config.data.max_masked_per_seq),
          .seq_tokens = config.data.max_seq_tokens};
}

StepSettings step_settings(const Config& config, const World& world, uint64_t seed) {
  return {.loss_mean = config.train.loss_mean,
          .nsp_weight = config.train.nsp_weight,
          .dropout_seed = derive_seed(seed, kDropoutPurpose, static_cast<uint64_t>(world.rank())),
          .num_ranks = world.size()};
}

uint64_t derive_seed(uint64_t seed, uint64_t purpose, uint64_t rank) {
  return mixed_seed(seed, purpose * 65536 + rank);
}

}  // namespace bertha
