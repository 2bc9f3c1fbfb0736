#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "data/files/new_file.h"
#include "harness/backend.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/model/params.h"
#include "harness/report/gains_report.h"
#include "harness/train/precision.h"
#include "harness/train/step_gains.h"
#include "kernels/base/error.h"
#include "kernels/bench/bench_report.h"
#include "kernels/bench/gain_cases.h"
#include "kernels/bench/op_bench.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

struct GainsOptions {
  std::string lengths;
  std::vector<std::string> only;
  std::string json;
  std::string svg;
  StepGainsOptions steps;
};

constexpr int64_t kLaunchesPerStep = 4;  // of operations, for each step that is asked for
constexpr int64_t kTurns = 2;
constexpr int64_t kImages = 128;  // of ResNet-50, for BatchNorm

bool is_one_of(const std::string& row, std::initializer_list<const char*> rows) {
  return std::ranges::find(rows, row) != rows.end();
}

/// Whether the rows of kernels that the benchmark alone has can run.
bool has_gain_kernels(const Config& config, bool on_gpu) {
  return on_gpu && size_bytes(planned_io(config.train, on_gpu)) == 2;
}

/// One segment per parameter, in a norms table of all.
std::vector<LambSegment> parameters_of(const Config& config) {
  const ParamTable table =
      make_param_table(make_dims(config.model), parse_decay_rule(config.optimizer.decay_rule));
  std::vector<LambSegment> segments;
  for (const ParamInfo& param : table.params) {
    segments.push_back({.tensor = std::ssize(segments),
                        .begin = param.offset,
                        .end = param.offset + param.elements,
                        .decay = param.decay});
  }
  return segments;
}

/// The rows of operations, off and on in turns. Attention takes the grouped kernels, whose groups
/// one of the rows is about. Returns whether all results that are compared agree; the row of those
/// that do not has a reason in place of times.
bool measure_operations(const Config& config, const GainsOptions& options, World& world,
                        GainsReport& report) {
  const auto is_operation = [](const GainRow& row) {
    return row.scope == "operation" && row.reason.empty();
  };
  if (std::ranges::none_of(report.rows, is_operation)) return true;
  const BackendChoice choice = choose_backend(config.train, world);
  CudaConfig cuda = config.cuda;
  cuda.attention = "grouped";
  const int threads =
      take_core_share(world, choice.gpu_bus_id).threads_for(config.train.threads_per_rank);
  const Backend backend = make_backend(choice, cuda, threads, world);
  const DType io = choose_io(config, *backend.device);
  report.device = backend.device->description();
  OpBench bench({.device = backend.device.get(),
                 .stream = backend.stream.get(),
                 .ops = backend.ops.get(),
                 .io = io,
                 .reference_threads = threads});
  const int64_t tokens =
      options.steps.tokens_per_rank > 0
          ? options.steps.tokens_per_rank
          : config.data.max_seq_tokens *
                std::max<int64_t>(config.train.global_batch_seqs / world.size(), 1);
  const BenchModel model = bench_model(config);
  const std::vector<BenchBatch> batches = bench_batches(
      config, {.lengths_path = options.lengths, .tokens = tokens}, *backend.device, world);
  const int64_t launches = std::max<int64_t>(kLaunchesPerStep * options.steps.steps / kTurns, 1);
  std::vector<GainCase> cases = make_gain_cases(model, batches.front(), parameters_of(config));
  if (has_gain_kernels(config, choice.kind == BackendChoice::Kind::kCuda)) {
    std::ranges::move(make_gain_kernel_cases(model, batches.front(), kImages, *backend.stream),
                      std::back_inserter(cases));
  }
  bool all_agree = true;
  for (const GainCase& made : cases) {
    const auto row = std::ranges::find(report.rows, made.row, &GainRow::name);
    if (row == report.rows.end() || !is_operation(*row)) continue;
    if (const double difference = made.is_compared ? disagreement(bench, made) : 0;
        difference > 1) {
      row->reason = concat("off and on disagree: results differ by ", difference,
                           " times what rounding explains");
      all_agree = false;
      continue;
    }
    const int64_t calls_per_micro_batch =
        config.model.layers * made.calls_per_layer + made.calls_per_micro_batch;
    row->calls_per_step = static_cast<double>(
        config.train.accumulation_steps * calls_per_micro_batch + made.calls_per_step);
    for (int64_t turn = 0; turn < kTurns; ++turn) {
      for (const double us : bench.run(made.off, launches).times_us) {
        row->off_ms.push_back(us / 1e3);
      }
      for (const double us : bench.run(made.on, launches).times_us) {
        row->on_ms.push_back(us / 1e3);
      }
    }
  }
  return all_agree;
}

/// Why a row cannot run here; "" = it can.
std::string why_not(const std::string& row, const Config& config, const World& world, bool on_gpu) {
  if (!has_gain_kernels(config, on_gpu) &&
      is_one_of(row, {"embedding-half2", "embedding-f32", "batch-norm-mask", "batch-norm-bytes",
                      "batch-norm-ballot"})) {
    return "needs a GPU and a train.precision of 16 bits";
  }
  if (!on_gpu && is_one_of(row, {"attention-streams", "attention-groups", "attention-persistent",
                                 "embedding-gradient", "gelu-gemms", "graphs"})) {
    return "needs a GPU";
  }
  if (world.size() < 2 && is_one_of(row, {"exchange", "exchange-ahead"}))
    return "needs 2 ranks or more";
  if (row == "gemm-plans" && (!on_gpu || config.cuda.gemm_plans.empty())) {
    return "needs a GPU and a file of plans, cuda.gemm_plans";
  }
  return row == "fp8" && has_fp8_gemms(config.train) ? "train.precision is fp8 already" : "";
}

int run_gains(const CLI::App& command, GainsOptions options, CommandContext& context) {
  World& world = *context.world;
  const BatchRule rule =
      options.steps.tokens_per_rank > 0 ? BatchRule::kAnySize : BatchRule::kDividesOverRanks;
  Config config = config_for_ranks(command, world, rule);
  GainsReport report{.model = config.model.name,
                     .device = {},
                     .precision = {},
                     .date = utc_date(),
                     .ranks = world.size(),
                     .rows = chosen_gain_rows(options.only)};
  options.steps.lengths = read_lengths(options.lengths, world);
  const bool on_gpu = choose_backend(config.train, world).kind == BackendChoice::Kind::kCuda;
  config.train.backend = on_gpu ? "cuda" : "cpu";  // `auto` is logged at each choice
  const DType io = planned_io(config.train, on_gpu);
  report.precision = precision_text(io, config.train);
  for (GainRow& row : report.rows) {
    row.reason = why_not(row.name, config, world, on_gpu);
  }
  context.error_scope = ErrorScope::kThisRank;
  measure_step_gains(config, options.steps, world, report);
  const ExitCode code =
      measure_operations(config, options, world, report) ? ExitCode::kSuccess : ExitCode::kNumeric;
  if (world.rank() != 0) return static_cast<int>(code);
  if (prints_text(options.json)) std::cout << gains_text(report);
  write_json_report(options.json, "bench gains", code, gains_json(report));
  if (!options.svg.empty()) write_new_file(options.svg, gains_svg(report));
  return static_cast<int>(code);
}

}  // namespace

void add_bench_gains_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& gains = add_command(
      bench, chosen,
      {.name = "gains",
       .description =
           "What each technique gains on this machine: off and on, in turns, at whole "
           "training steps on synthetic batches or at the operations that differ, beside "
           "what its source reports. Needs no data. Exit code 7 when variants that are compared "
           "disagree.",
       .examples = {"bertha bench gains --config configs/quickstart.yaml",
                    "bertha bench gains --config configs/mlperf_closed_8gpu_448.yaml "
                    "--lengths lengths.txt --tokens-per-rank 24576 --json gains.json "
                    "--svg gains.svg",
                    "mpirun -np 2 bertha bench gains --only exchange,exchange-ahead"}});
  GainsOptions& options = set_action<GainsOptions>(gains, chosen, run_gains);
  add_text(gains, "--lengths", options.lengths, "FILE",
           "Counts of sequence lengths, as `bench step` reads them (default: all at full length, "
           "where un-padding gains nothing)");
  add_count(gains, "--tokens-per-rank", options.steps.tokens_per_rank,
            "Live tokens of each rank's micro-batch, instead of train.global_batch_seqs", 1,
            int64_t{1} << 30);
  add_count(gains, "--steps", options.steps.steps,
            "Steps of each variant, in turns of four (default {})", 1);
  add_text(gains, "--only", options.only, "ROW[,..]", "Only these rows, separated by commas")
      .separated_by_commas();
  add_json(gains, options.json);
  add_text(gains, "--svg", options.svg, "FILE", "File for the gains as a bar chart");
  add_config_options(gains, ShortOptions::kStepBench);
}

}  // namespace bertha
