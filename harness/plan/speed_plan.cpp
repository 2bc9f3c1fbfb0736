#include "harness/plan/speed_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/config/run_plan.h"
#include "harness/mlperf/published_curves.h"
#include "harness/mlperf/rcp.h"
#include "harness/optim/shard_plan.h"
#include "harness/report/text_format.h"
#include "harness/train/session.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kRowMultiple = 256;  // of token rows on a GPU
constexpr DType kIo = DType::kBF16;    // as wide as f16

// Steps of ranks that wait for each other take as long as the slowest. GPUs differ, and so do
// their steps; so large a deviation makes the steps of 2 and 4 GPUs those of
// kernels/measured/step.md.
constexpr double kStepDeviation = 0.019;

// One core gives so many sequences per second (kernels/measured/step.md, "CPU side").
constexpr double kInputSeqsPerSecond = 121'000;

// The part of LAMB that writes weights, and can be followed by their gathering.
constexpr double kApplyShare = 14.0 / 40;

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// Mean of the largest of `count` standard normal numbers.
double mean_of_largest(int64_t count) {
  constexpr double kStep = 0.005;
  constexpr double kEnd = 8;
  double mean = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    const auto power = static_cast<double>(count);
    mean += kStep * (1 - std::pow(normal_cdf(x), power) - std::pow(normal_cdf(-x), power));
  }
  return mean;
}

TokenBalance tokens_of(const SpeedRequest& request) {
  const Config& config = request.config;
  if (request.tokens_per_rank > 0) {
    const auto tokens = static_cast<double>(request.tokens_per_rank);
    return {.mean_tokens = tokens, .most_tokens = tokens, .most_rows = tokens};
  }
  return balance_of({.lengths = request.lengths,
                     .max_seq_tokens = config.data.max_seq_tokens,
                     .max_masked_per_seq = config.data.max_masked_per_seq,
                     .global_batch_seqs = config.train.global_batch_seqs,
                     .micro_batches_per_step = config.train.accumulation_steps,
                     .exchange = parse_exchange(config.data.exchange_padding),
                     .num_ranks = static_cast<int>(request.cluster.ranks)},
                    kRowMultiple);
}

MeanMicroBatch batch_of(double tokens, const LengthMeans& means) {
  return {.tokens = tokens,
          .squared_tokens = tokens * means.squared_tokens / means.tokens,
          .masked = kMaskedShare * tokens};
}

void add(StepTime& step, const std::string& name, double ms, double hidden_ms = 0) {
  step.parts.push_back({.name = name, .ms = ms, .hidden_ms = hidden_ms});
  step.step_ms += step.parts.back().exposed_ms();
}

/// The two largest shares of the step, where all of the exchange counts as one, and all waiting.
std::string bound_of(const StepTime& step, bool is_bound_by_latency) {
  struct Share {
    std::string name;
    std::vector<std::string> parts;
    double ms = 0;
  };
  const std::string why = is_bound_by_latency ? "latencies of kernels that do not fill the GPU"
                                              : "GEMMs at the GPU's power limit";
  std::vector<Share> shares{
      {.name = concat("forward and backward (", why, ")"), .parts = {"forward and backward"}},
      {.name = "exchange between GPUs",
       .parts = {"gradient sums", "weight gathers", "slowed by them", "norms over ranks"}},
      {.name = "waiting for the last GPU", .parts = {"uneven lengths", "slowest GPU"}},
      {.name = "LAMB", .parts = {"LAMB"}},
      {.name = "input pipeline", .parts = {"input pipeline"}}};
  for (Share& share : shares) {
    for (const StepPart& part : step.parts) {
      if (std::ranges::count(share.parts, part.name) > 0) share.ms += part.exposed_ms();
    }
  }
  std::ranges::stable_sort(shares, std::greater{}, &Share::ms);
  const auto text = [&](const Share& share) {
    return concat(fixed_text(100 * share.ms / step.step_ms, 0), " % ", share.name);
  };
  return concat(text(shares[0]), ", then ", text(shares[1]));
}

StepTime predict_step(const SpeedRequest& request, const Dims& dims, const ParamTable& table,
                      const LengthMeans& means) {
  const Config& config = request.config;
  const Cluster& cluster = request.cluster;
  const TokenBalance tokens = tokens_of(request);
  const MeanMicroBatch batch = batch_of(tokens.mean_tokens, means);
  const auto micro_batches = static_cast<double>(config.train.accumulation_steps);
  const double mean_ms = pass_ms(dims, batch, request.precision);
  const double most_ms = pass_ms(dims, batch_of(tokens.most_rows, means), request.precision);
  const double lamb = lamb_ms(static_cast<double>(table.elements) / cluster.shards());
  const ShardPlan shards = make_shard_plan(
      table, {.shards = static_cast<int>(cluster.shards()),
              .bucket_elements = bucket_elements(config.optimizer.bucket_mib, kIo)});
  const ExchangeTime exchange =
      exchange_time({.cluster = cluster,
                     .table = &table,
                     .shards = &shards,
                     .bytes_per_element = size_bytes(kIo),
                     .forward_ms = most_ms * kForwardShare,
                     .backward_ms = most_ms * (1 - kForwardShare),
                     .apply_ms = lamb * kApplyShare,
                     .sums_wait_for_backward = config.optimizer.clip == "before" &&
                                               !(cluster.copies && cluster.nodes() == 1)});

  StepTime step;
  step.tokens_per_rank = tokens.mean_tokens * micro_batches;
  add(step, "forward and backward", micro_batches * mean_ms);
  add(step, "uneven lengths", micro_batches * (most_ms - mean_ms));
  add(step, "slowest GPU",
      micro_batches * most_ms * kStepDeviation * mean_of_largest(cluster.ranks));
  add(step, "LAMB", lamb);
  if (cluster.ranks > 1) {
    add(step, "gradient sums", exchange.sums_ms, exchange.hidden_sums_ms);
    add(step, "weight gathers", exchange.gathers_ms, exchange.hidden_gathers_ms);
    add(step, "slowed by them", exchange.slowdown_ms);
    add(step, "norms over ranks", 2 * small_sum_ms(cluster));
  }
  const double seqs = tokens.mean_tokens * micro_batches / means.tokens;  // of a rank
  const double input_ms = 1e3 * seqs / kInputSeqsPerSecond;
  add(step, "input pipeline", input_ms, std::min(input_ms, step.step_ms));
  step.seqs_per_second = 1e3 * seqs * static_cast<double>(cluster.ranks) / step.step_ms;

  step.bounded_by = bound_of(step, is_bound_by_latency(dims, batch, request.precision));
  return step;
}

double eval_seconds(const SpeedRequest& request, const Dims& dims, const LengthMeans& means) {
  const auto seqs = static_cast<double>(request.eval_seqs);
  const double of_rank = std::ceil(seqs / static_cast<double>(request.cluster.ranks));
  const auto batch_seqs = static_cast<double>(request.config.eval.batch_seqs);
  const double tokens = std::min(of_rank, batch_seqs) * means.tokens;
  const double rows = std::ceil(tokens / kRowMultiple) * kRowMultiple;
  return 1e-3 * std::ceil(of_rank / batch_seqs) * kForwardShare *
         pass_ms(dims, batch_of(rows, means), request.precision);
}

RunTime predict_run(const SpeedRequest& request, const StepTime& step, double eval_s,
                    int64_t parameters) {
  const RunPlan plan = make_run_plan(request.config);
  const TrainConfig& train = request.config.train;
  RunTime run{.samples = plan.last_samples,
              .steps = plan.last_step,
              .evals = plan.num_evals(),
              .eval_seconds = eval_s};
  const bool is_benchmark =
      is_benchmark_run({.parameters = parameters, .target_accuracy = train.target_accuracy});
  const std::optional<ReferencePoint> reference =
      reference_point(static_cast<double>(train.global_batch_seqs));
  // A mean over runs that ended at evaluations, so that no more are added.
  if (is_benchmark && reference && reference->mean_samples <= plan.last_samples) {
    run.to_target = true;
    run.samples = std::llround(reference->mean_samples);
    run.steps = (run.samples - 1) / train.global_batch_seqs + 1;
    run.evals = std::ranges::count_if(
        plan.evals, [&](const PlannedEval& eval) { return eval.samples <= run.samples; });
  }
  run.seconds = 1e-3 * step.step_ms * static_cast<double>(run.steps) +
                static_cast<double>(run.evals) * run.eval_seconds;
  run.megajoules =
      1e-6 * kWattsAtPowerLimit * run.seconds * static_cast<double>(request.cluster.ranks);
  return run;
}

void check_cluster(const SpeedRequest& request) {
  const Cluster& cluster = request.cluster;
  if (cluster.nodes() > 1 && cluster.ranks % cluster.ranks_per_node != 0) {
    fail(ExitCode::kUsage, "--ranks: found ", cluster.ranks, ", want whole nodes of ",
         cluster.ranks_per_node, " GPUs; --ranks-per-node says how many a node has");
  }
}

}  // namespace

SpeedPlan predict_speed(const SpeedRequest& request) {
  check_cluster(request);
  const Config& config = request.config;
  const Dims dims = make_dims(config.model);
  const ParamTable table = make_param_table(dims, parse_decay_rule(config.optimizer.decay_rule));
  int64_t parameters = 0;
  for (const ParamInfo& param : table.params) parameters += param.elements;
  const LengthMeans means = means_of(request.lengths, config.data.max_seq_tokens);
  SpeedPlan plan{.step = predict_step(request, dims, table, means), .run = {}};
  plan.run = predict_run(request, plan.step, eval_seconds(request, dims, means), parameters);
  return plan;
}

}  // namespace bertha
