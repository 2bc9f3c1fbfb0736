#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/bench_commands.h"
#include "harness/cli/bench_op_cases.h"
#include "harness/cli/choice.h"
#include "harness/cli/config_options.h"
#include "harness/cli/option_checks.h"
#include "harness/cli/rank_config.h"
#include "harness/comm/binding.h"
#include "harness/report/kernel_bench_report.h"
#include "harness/report/text_format.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"
#include "kernels/bench/op_bench.h"
#include "kernels/bench/op_cases.h"

namespace bertha {
namespace {

struct KernelOptions {
  std::vector<std::string> operations;
  std::string dtype;
  std::string lengths;
  std::string json;
  std::string tune;
  int64_t tokens = 24576;
  int64_t launches = 100;
  double peak_tflops = 0;  // 0 = measured
  double peak_gbps = 0;    // 0 = measured
};

void tune(const KernelOptions& options, const BenchModel& model, const BenchBatch& batch, DType io,
          const BackendChoice& choice, const Backend& backend) {
  const char* const products[] = {"forward", "data gradient", "weight gradient"};
  const std::vector<GemmShape> shapes = model_products(model, batch, io);
  std::cout << "tuning " << shapes.size() << " products; first choice and tuned, us\n";
  tune_products(
      choice, backend, shapes, options.tune, [&](const GemmShape& shape, const GemmTuning& tuning) {
        std::cout << "  " << shape.rows << 'x' << shape.outputs << 'x' << shape.inputs << ' '
                  << products[static_cast<int>(shape.product)] << ": "
                  << fixed_text(tuning.first_us, 1) << "  " << fixed_text(tuning.tuned_us, 1)
                  << "  of " << tuning.candidates << " algorithms, " << tuning.wrong << " wrong\n";
      });
  std::cout << "written: " << options.tune << "; name it in cuda.gemm_plans\n\n";
}

int run_kernels(const CLI::App& command, const KernelOptions& options, CommandContext& context) {
  World& world = *context.world;
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "bench kernels runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  Config config = config_for_ranks(command, world, BatchRule::kAnySize);
  if (!options.dtype.empty()) config.train.precision = options.dtype;
  if (config.train.precision == "fp16") config.optimizer.loss_scale = "dynamic";  // fp16 wants one
  const BackendChoice choice = choose_backend(config.train, world);
  const CoreShare cores = take_core_share(world, choice.gpu_bus_id);
  const int threads = config.train.threads_per_rank > 0
                          ? static_cast<int>(config.train.threads_per_rank)
                          : cores.threads;
  const BenchModel model = bench_model(config);
  Backend backend = make_backend(choice, config.cuda, threads, world);
  const DType io = choose_io(config, *backend.device);
  const std::vector<BenchBatch> batches =
      bench_batches(config,
                    {.lengths_path = options.lengths,
                     .tokens = options.tokens,
                     .multiple = backend.device->token_multiple()},
                    world);
  const std::vector<OpCase> cases = chosen_cases(make_op_cases(model, batches), options.operations);
  if (!options.tune.empty()) {
    tune(options, model, batches.front(), io, choice, backend);
    config.cuda.gemm_plans = options.tune;
    backend = Backend();  // its memory goes before the next one's comes
    backend = make_backend(choice, config.cuda, threads, world);
  }

  OpBench bench({.device = backend.device.get(),
                 .stream = backend.stream.get(),
                 .ops = backend.ops.get(),
                 .io = io,
                 .reference_threads = cores.threads});
  double largest_flops = 0;
  for (const OpCase& op : cases) largest_flops = std::max(largest_flops, op.flops);
  KernelBenchReport report{.model = config.model.name,
                           .device = backend.device->description(),
                           .precision = name(io),
                           .date = utc_date(),
                           .tokens = batches.front().rows(),
                           .peak_flops_per_second = 1e12 * options.peak_tflops,
                           .peak_bytes_per_second = 1e9 * options.peak_gbps,
                           .rows = {}};
  if (largest_flops > 0 && options.peak_tflops == 0) {
    report.peak_flops_per_second = bench.product_roof(largest_flops, options.launches);
  }
  report.rows = run_cases(bench, cases, options.launches);
  return finish_report(report, options.json);
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& kernels = add_command(
      bench, chosen,
      {.name = "kernels",
       .description = "Checks and times every operation of a training step at the shapes of the "
                      "model, beside a plain copy of as many bytes and a large product. Exit code "
                      "7 when a result is wrong.",
       .examples = {"bertha bench kernels --lengths lengths.txt --json kernels.json",
                    "bertha bench kernels --op attention,linear_fwd --tokens 8192",
                    "bertha bench kernels --config configs/models/base.yaml --dtype fp16",
                    "bertha bench kernels --tune gemm_plans.txt --op linear_fwd"}});
  const auto options = std::make_shared<KernelOptions>();
  kernels
      .add_option("--op", options->operations,
                  "Only these operations, separated by commas; attention is attention_fwd and "
                  "attention_bwd")
      ->delimiter(',')
      ->type_name("NAME[,..]");
  add_choice<std::string>(kernels, "--dtype", options->dtype,
                          {{"bf16", "bf16"}, {"fp16", "fp16"}, {"fp32", "fp32"}},
                          "Short for train.precision");
  kernels
      .add_option("--tokens", options->tokens,
                  concat("Live tokens of the batch (default ", options->tokens, ")"))
      ->check(whole_number(1, int64_t{1} << 24))
      ->type_name("N");
  kernels
      .add_option("--lengths", options->lengths,
                  "Counts of sequence lengths, as `bench step` reads them, for a batch of "
                  "mixed lengths")
      ->type_name("FILE");
  kernels
      .add_option("--repeats", options->launches,
                  concat("Launches to time (default ", options->launches, ")"))
      ->check(whole_number(1, 1000000))
      ->type_name("N");
  kernels
      .add_option("--peak-tflops", options->peak_tflops,
                  "Roof of products (default: a large one, measured)")
      ->check(above_zero())
      ->type_name("X");
  kernels
      .add_option("--peak-gbps", options->peak_gbps,
                  "Roof of the rest (default: a plain copy of as many bytes, measured)")
      ->check(above_zero())
      ->type_name("X");
  kernels
      .add_option("--tune", options->tune,
                  "First tune the products of the model on this GPU, and add them to this file")
      ->type_name("FILE");
  kernels.add_option("--json", options->json, "File for the same figures as JSON")
      ->type_name("FILE");
  add_config_options(kernels, ShortOptions::kStepBench);
  kernels.callback([&kernels, &chosen, options] {
    chosen.action = [&kernels, options](CommandContext& context) {
      return run_kernels(kernels, *options, context);
    };
  });
}

}  // namespace bertha
