#include <iostream>
#include <memory>
#include <string>

#include "data/files/new_file.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/train/step_bench.h"

namespace bertha {
namespace {

struct StepOptions {
  std::string lengths;
  std::string json;
  double peak_tflops = 0;  // 0 = not given
  StepBenchOptions bench;
};

int run_step_bench(const CLI::App& command, StepOptions options, CommandContext& context) {
  World& world = *context.world;
  const BatchRule rule =
      options.bench.tokens_per_rank > 0 ? BatchRule::kAnySize : BatchRule::kDividesOverRanks;
  const Config config = config_for_ranks(command, world, rule);
  options.bench.lengths = read_lengths(options.lengths, world);
  context.error_scope = ErrorScope::kThisRank;
  StepBenchReport report = bench_step(config, options.bench, world);
  if (world.rank() != 0) return 0;
  if (options.peak_tflops > 0) report.peak_flops_per_second = 1e12 * options.peak_tflops;
  std::cout << step_bench_text(report);
  if (!options.json.empty()) write_new_file(options.json, step_bench_json(report));
  return 0;
}

}  // namespace

void add_bench_step_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& step = add_command(
      bench, chosen,
      {.name = "step",
       .description = "Times whole training steps on fresh synthetic batches, from the copy to the "
                      "device to the new weights. Needs no data.",
       .examples = {"bertha bench step --config configs/quickstart.yaml",
                    "mpirun -np 8 bertha bench step --config configs/mlperf_closed_8gpu_448.yaml "
                    "--lengths lengths.txt",
                    "bertha bench step --config configs/mlperf_closed_8gpu_448.yaml "
                    "--tokens-per-rank 24576 --by-operation --json step.json"}});
  const auto options = std::make_shared<StepOptions>();
  StepBenchOptions& sizes = options->bench;
  add_text(step, "--lengths", options->lengths, "FILE",
           "Counts of sequence lengths 1, 2, ..., one per line, or lines of a length and its count "
           "(default: all at full length)");
  add_count(step, "--tokens-per-rank", sizes.tokens_per_rank,
            "Live tokens of each rank's micro-batch, instead of train.global_batch_seqs", 1,
            int64_t{1} << 30);
  add_count(step, "--steps", sizes.steps, "Steps to time (default {})", 1);
  add_count(step, "--warmup", sizes.warmup_steps, "Steps before those (default {})");
  add_number(step, "--peak-tflops", options->peak_tflops,
             "What the utilization compares with (default: the data sheet's dense peak of 16-bit "
             "GEMMs, for the H100 and H200)",
             above_zero());
  step.add_flag("--by-operation", sizes.by_operation,
                "Also time each operation; its events cost a little");
  add_text(step, "--json", options->json, "FILE", "File for the same figures as JSON");
  add_config_options(step, ShortOptions::kStepBench);
  set_action(step, chosen, [&step, options](CommandContext& context) {
    return run_step_bench(step, *options, context);
  });
}

}  // namespace bertha
