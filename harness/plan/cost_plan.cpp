#include "harness/plan/cost_plan.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "harness/comm/copy_collectives.h"
#include "harness/comm/grouped_collectives.h"
#include "harness/model/bert.h"
#include "harness/model/flops.h"
#include "harness/model/params.h"
#include "harness/optim/shard_plan.h"
#include "harness/train/session.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

constexpr int64_t kBytesOfMoments = 12;  // f32 master weight and two f32 moments
constexpr int64_t kBytesOfUpdate = 4;    // LAMB's f32 direction, kept until the norms are known

// GPU memory in addition to the tensors. The second is a rough estimate of the driver's context and
// the code of the libraries.
constexpr int64_t kGemmWorkspaceBytes = int64_t{64} << 20;
constexpr int64_t kCudaContextBytes = int64_t{1} << 30;
// Graphs: NVIDIA's figure for the memory of a kernel node (NVIDIA/cccl, pull request 3768), about
// 30 kernels per layer, forward and backward, and two dozen batch sizes. Not measured here.
constexpr int64_t kGraphNodeBytes = 10'000;
constexpr int64_t kKernelsOfLayer = 30;
constexpr int64_t kSizesOfBatches = 24;
// Queries, keys, values, the result and the gradients of all four, if attention copies heads.
constexpr int64_t kTensorsOfHeads = 8;
// One of two H200s used 25.3 GiB, 0.4 more than the rest of this plan; a single one 0.4 GiB less
// (kernels/measured/step.md).
constexpr int64_t kNcclBytes = int64_t{820} << 20;
// Inside the node, between nodes, and over all ranks.
constexpr int64_t kCommunicatorsOfGroups = 3;

NodeSizes nodes_of(const PlanRequest& request) {
  const auto ranks = static_cast<int>(request.ranks);
  const int on_node = request.ranks_per_node == 0
                          ? ranks
                          : std::min(ranks, static_cast<int>(request.ranks_per_node));
  return {.ranks = ranks,
          .smallest = ranks % on_node == 0 ? on_node : ranks % on_node,
          .largest = on_node};
}

Grouping grouping_of(const PlanRequest& request) {
  return plan_grouping(request.config.optimizer.shard_group, nodes_of(request));
}

/// Whether the GPUs of a node communicate by copies.
bool may_copy(const PlanRequest& request) {
  const NodeSizes nodes = nodes_of(request);
  const bool are_apart = nodes.ranks > nodes.largest && grouping_of(request) == Grouping::kFlat;
  return request.on_gpu && nodes.largest > 1 && nodes.largest <= kMaxCopyRanks && !are_apart &&
         request.config.cuda.exchange != GradientTransport::kNccl;
}

std::vector<MemoryClass> memory_of(const PlanRequest& request, const ParamTable& table,
                                   const BatchRows& capacity) {
  const int64_t io_bytes = size_bytes(request.io);
  const double bucket_mib = request.config.optimizer.bucket_mib;
  const NodeSizes nodes = nodes_of(request);
  const int num_shards = grouping_of(request) == Grouping::kNode ? nodes.largest : nodes.ranks;
  const ShardPlan shards = make_shard_plan(
      table, {.shards = num_shards, .bucket_elements = bucket_elements(bucket_mib, request.io)});
  const auto padded_rows = request.on_gpu ? padded_rows_on_gpu : padded_rows_on_cpu;
  const BatchRows rows = padded(capacity, padded_rows);
  std::vector<MemoryClass> memory{
      {"weights", shards.flat_elements * io_bytes},
      {"gradients", shards.flat_elements * io_bytes},
      {"optimizer shard", shards.shard_elements * kBytesOfMoments},
      {"activations and batches",
       activation_bytes_for(request.config.model, rows, request.io, request.fp8)},
  };
  if (request.config.optimizer.name == OptimizerName::kLamb && num_shards > 1) {
    memory.push_back({"update direction", shards.shard_elements * kBytesOfUpdate});
  }
  if (num_shards > 1) {  // a single shard is the flat buffers
    memory.push_back({"gradients of the shard", shards.shard_elements * io_bytes});
  }
  if (may_copy(request)) {
    const OptimizerConfig& optimizer = request.config.optimizer;
    const bool sends_ahead = optimizer.clip == ClipTime::kBefore && optimizer.max_gradient_norm > 0;
    memory.push_back(
        {"gradients that arrive",
         CopyOptions{}.staging_bytes + (sends_ahead ? shards.flat_elements * io_bytes : 0)});
  }
  if (request.on_gpu) {
    memory.push_back({"GEMM workspace", kGemmWorkspaceBytes});
    memory.push_back({"CUDA context, libraries", kCudaContextBytes});
    const Dims dims = make_dims(request.config.model);
    const int64_t columns = round_up(dims.D, 8);  // as required by the 16-bit kernels
    if (request.io != DType::kF32 && columns != dims.D) {
      memory.push_back({"copies of attention heads",
                        kTensorsOfHeads * rows.tokens * dims.A * columns * io_bytes});
    }
    const CudaConfig& cuda = request.config.cuda;
    if (cuda.graphs == CudaGraphs::kAuto && cuda.kernels != CudaKernels::kPortable &&
        cuda.attention != CudaOptions::AttentionVariant::kGrouped) {
      memory.push_back({"CUDA graphs", kGraphNodeBytes * kKernelsOfLayer * kSizesOfBatches *
                                           request.config.model.layers});
    }
    if (request.ranks > 1) {
      const bool is_flat = grouping_of(request) == Grouping::kFlat;
      memory.push_back({"NCCL communicators", kNcclBytes * (is_flat ? 1 : kCommunicatorsOfGroups)});
    }
  }
  return memory;
}

int64_t sum_of(const std::vector<MemoryClass>& memory) {
  int64_t bytes = 0;
  for (const MemoryClass& part : memory) bytes += part.bytes;
  return bytes;
}

ParamTable table_of(const Config& config) {
  return make_param_table(make_dims(config.model), config.optimizer.decay_rule);
}

int64_t flops_of_mean_sequence(const PlanRequest& request, const Dims& dims) {
  // A thousand average sequences, so that fractions of tokens are counted.
  constexpr int64_t kSeqs = 1000;
  const DataConfig& data = request.config.data;
  const auto longest = static_cast<double>(data.max_seq_tokens);
  const bool known = request.mean_seq_tokens > 0;
  const double tokens = known ? request.mean_seq_tokens : longest;
  const double squared = known ? request.mean_squared_tokens : longest * longest;
  const double masked = request.mean_masked_per_seq > 0 ? request.mean_masked_per_seq
                                                        : static_cast<double>(masked_per_seq(data));
  const StepWork work{.num_tokens = std::llround(kSeqs * tokens),
                      .num_masked = std::llround(kSeqs * masked),
                      .num_seqs = kSeqs,
                      .squared_tokens = std::llround(kSeqs * squared)};
  return static_cast<int64_t>(model_flops_per_step(dims, work) / kSeqs);
}

}  // namespace

CostPlan make_cost_plan(const PlanRequest& request) {
  const Config& config = request.config;
  const Dims dims = make_dims(config.model);
  const ParamTable table = table_of(config);
  CostPlan plan;
  for (const ParamInfo& param : table.params) plan.parameters += param.elements;
  plan.run = make_run_plan(config);
  plan.seqs_per_micro_batch = micro_batch_seqs(config, request.ranks);
  plan.memory = memory_of(request, table, batch_capacity(config, request.ranks));
  plan.memory_bytes = sum_of(plan.memory);

  plan.flops_per_seq = flops_of_mean_sequence(request, dims);
  plan.flops_per_run =
      static_cast<double>(plan.flops_per_seq) * static_cast<double>(plan.run.last_samples);
  return plan;
}

int64_t largest_fitting(const std::function<bool(int64_t)>& fits) {
  int64_t most = 0, too_many = 1;
  while (fits(too_many)) most = std::exchange(too_many, 2 * too_many);
  while (too_many - most > 1) {
    const int64_t middle = std::midpoint(most, too_many);
    (fits(middle) ? most : too_many) = middle;
  }
  return most;
}

MemoryFit fit_into(const PlanRequest& request, int64_t memory_bytes) {
  const ParamTable table = table_of(request.config);
  const DataConfig& data = request.config.data;
  const auto fits = [&](int64_t seqs) {
    const BatchRows capacity{.tokens = seqs * data.max_seq_tokens,
                             .seqs = seqs,
                             .masked = seqs * masked_per_seq(data),
                             .seq_tokens = data.max_seq_tokens};
    return sum_of(memory_of(request, table, capacity)) <= memory_bytes;
  };
  const int64_t global = request.config.train.global_batch_seqs;
  MemoryFit fit{.seqs_per_micro_batch = largest_fitting(fits)};
  for (int64_t steps = 1; steps * request.ranks <= global; ++steps) {
    const int64_t slots = steps * request.ranks;
    if (global % slots == 0 && global / slots <= fit.seqs_per_micro_batch) {
      fit.accumulation_steps = steps;
      break;
    }
  }
  return fit;
}

TimeEstimate estimate_time(const PlanRequest& request, const CostPlan& cost, int64_t eval_seqs) {
  TimeEstimate time{.flops_per_second =
                        request.fp8 ? kStepFlopsPerSecondFp8 : kStepFlopsPerSecond16Bit};
  const double of_all = time.flops_per_second * static_cast<double>(request.ranks);
  const double seq_seconds = static_cast<double>(cost.flops_per_seq) / of_all;
  time.step_ms = 1e3 * seq_seconds * static_cast<double>(request.config.train.global_batch_seqs);
  time.seqs_per_second = 1 / seq_seconds;
  // Backward takes twice as long as forward; evaluation has only forward.
  const double evaluation = seq_seconds / 3 * static_cast<double>(eval_seqs);
  time.seconds =
      cost.flops_per_run / of_all + evaluation * static_cast<double>(cost.run.num_evals());
  return time;
}

int64_t parse_bytes(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1},     {"kB", 1e3},     {"KB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"G", 1e9},
      {"M", 1e6}};
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  for (const auto& [unit, factor] : kUnits) {
    if (error == std::errc{} && suffix == unit && value > 0 && value * factor < 1e18) {
      return static_cast<int64_t>(value * factor);
    }
  }
  fail(ExitCode::kUsage, "--gpu-memory: found \"", shortened(text),
       "\", want a size such as 141GB or 80GiB");
}

}  // namespace bertha
