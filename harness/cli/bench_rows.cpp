#include <memory>
#include <string>
#include <vector>

#include "harness/backend.h"
#include "harness/cli/bench_commands.h"
#include "harness/cli/bench_op_cases.h"
#include "harness/cli/choice.h"
#include "harness/cli/config_options.h"
#include "harness/cli/option_checks.h"
#include "harness/cli/rank_config.h"
#include "harness/comm/binding.h"
#include "kernels/base/error.h"
#include "kernels/bench/sweep_cases.h"

namespace bertha {
namespace {

struct RowOptions {
  std::vector<std::string> operations;
  DType io = DType::kF16;
  std::string json;
  std::vector<int64_t> widths;  // empty: default_widths
  int64_t rows = 49152;
  int64_t images = 128;
  int64_t launches = 50;
};

/// PReLU and BatchNorm have no double, and the CPU backend has them in f32 only.
bool has_channels(DType io, const Device& device) { return io != DType::kF64 && device.has_io(io); }

int run_rows(const CLI::App& command, const RowOptions& options, CommandContext& context) {
  World& world = *context.world;
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "bench rows runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  const Config config = config_for_ranks(command, world, BatchRule::kAnySize);
  const BackendChoice choice = choose_backend(config.train, world);
  const CoreShare cores = take_core_share(world, choice.gpu_bus_id);
  const int threads = config.train.threads_per_rank > 0
                          ? static_cast<int>(config.train.threads_per_rank)
                          : cores.threads;
  const Backend backend = make_backend(choice, config.cuda, threads, world);
  const DType io = options.io;
  std::vector<OpCase> cases =
      make_row_cases({.widths = options.widths.empty() ? default_widths() : options.widths,
                      .rows = options.rows,
                      .most_bytes = backend.device->total_memory_bytes() / 2,
                      .io = io});
  if (has_channels(io, *backend.device)) {
    for (OpCase& op : make_channel_cases(options.images)) cases.push_back(std::move(op));
  } else {
    refuse_cases(make_channel_cases(1), options.operations,
                 concat("runs in fp32", backend.device->has_io(DType::kF16) ? " and 16 bits" : "",
                        " here; give --dtype fp32"));
  }
  cases = chosen_cases(std::move(cases), options.operations);

  OpBench bench({.device = backend.device.get(),
                 .stream = backend.stream.get(),
                 .ops = backend.ops.get(),
                 .io = io,
                 .reference_threads = cores.threads});
  return finish_report({.model = {},
                        .device = backend.device->description(),
                        .precision = name(io),
                        .date = utc_date(),
                        .rows = run_cases(bench, cases, options.launches)},
                       options.json);
}

}  // namespace

void add_bench_rows_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& rows = add_command(
      bench, chosen,
      {.name = "rows",
       .description = "Checks and times softmax and LayerNorm over many widths, PReLU at the "
                      "shapes of an InsightFace network and BatchNorm + (Add +) ReLU at those of "
                      "ResNet-50, beside a plain copy of as many bytes. Exit code 7 when a result "
                      "is wrong.",
       .examples = {"bertha bench rows --json rows.json", "bertha bench rows --dtype fp64",
                    "bertha bench rows --op softmax_fwd,softmax_bwd --widths 513,30522",
                    "bertha bench rows --op prelu_fwd --images 256 --repeats 200"}});
  const auto options = std::make_shared<RowOptions>();
  rows.add_option("--op", options->operations, "Only these operations, separated by commas")
      ->delimiter(',')
      ->type_name("NAME[,..]");
  add_choice<DType>(
      rows, "--dtype", options->io,
      {{"fp16", DType::kF16}, {"bf16", DType::kBF16}, {"fp32", DType::kF32}, {"fp64", DType::kF64}},
      "Element type; fp64 for softmax and LayerNorm only, 16 bits for PReLU and "
      "BatchNorm on a GPU only (default fp16)");
  rows.add_option("--widths", options->widths,
                  "Columns of a row (default: powers of two from 32 to 32,768, and 33, 100, 513, "
                  "1,000, 5,000, 30,522)")
      ->delimiter(',')
      ->check(whole_number(1, int64_t{1} << 24))
      ->type_name("N[,..]");
  const auto count = [&](const std::string& name, int64_t& value, const std::string& doc) {
    rows.add_option(name, value, concat(doc, " (default ", value, ")"))
        ->check(whole_number(1, int64_t{1} << 24))
        ->type_name("N");
  };
  count("--rows", options->rows, "Rows; fewer where the device's memory is small");
  count("--images", options->images, "Images of a batch, for PReLU and BatchNorm");
  count("--repeats", options->launches, "Launches to time");
  rows.add_option("--json", options->json, "File for the same figures as JSON")->type_name("FILE");
  add_config_options(rows, ShortOptions::kStepBench);
  rows.callback([&rows, &chosen, options] {
    chosen.action = [&rows, options](CommandContext& context) {
      return run_rows(rows, *options, context);
    };
  });
}

}  // namespace bertha
