#include <algorithm>
#include <new>
#include <string>

#include "harness/backend.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/plan/cost_plan.h"
#include "harness/report/report.h"
#include "harness/report/text_format.h"
#include "harness/train/step_bench.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

struct StepOptions {
  std::string lengths;
  std::string json;
  bool largest_batch = false;
  double peak_tflops = 0;  // 0 = not given
  StepBenchOptions bench;
};

/// Whether `seqs` sequences per micro-batch fit, found by running enough steps to record and launch
/// a graph.
bool runs(Config config, StepBenchOptions bench, int64_t seqs, World& world) {
  config.train.global_batch_seqs = seqs * config.train.accumulation_steps;
  config.eval.batch_seqs = std::min(config.eval.batch_seqs, seqs);
  bench.warmup_steps = 2;
  bench.steps = 1;
  std::string found = "out of memory";
  bool fits = false;
  try {
    found = bytes_text(bench_step(config, bench, world).peak_memory_bytes);
    fits = true;
  } catch (const Error& error) {
    if (error.code != ExitCode::kMemory) throw;
  } catch (const std::bad_alloc&) {
  }
  log_line(LogLevel::kInfo, fmt::format("{}: {}", counted_text(seqs, "sequence"), found));
  return fits;
}

int find_largest_batch(Config config, const StepOptions& options, World& world) {
  if (world.size() > 1) {
    fail(ExitCode::kUsage, "--largest-batch runs on one rank, found ", world.size(),
         "; start it without mpirun");
  }
  const bool has_gpu = !choose_gpu(config.train.backend, world).is_none();
  config.train.backend = has_gpu ? ComputeBackend::kCuda : ComputeBackend::kCpu;
  const int64_t most =
      largest_fitting([&](int64_t seqs) { return runs(config, options.bench, seqs, world); });
  const int64_t tokens = config.data.max_seq_tokens;
  if (most == 0) {
    fail(ExitCode::kMemory, "not even one sequence of ", tokens,
         " tokens fits; choose a smaller model or data.max_seq_tokens");
  }
  Report report;
  report.line("largest micro-batch: {} of up to {} tokens",
              figure("largest_micro_batch_seqs", most, counted("sequence")), tokens);
  report.line(
      "keep eval.batch_seqs and train.global_batch_seqs / (ranks x train.accumulation_steps) "
      "within {}",
      most);
  write_report(report, options.json);
  return 0;
}

int run_step_bench(const CLI::App& command, StepOptions options, CommandContext& context) {
  World& world = *context.world;
  const BatchRule rule =
      options.bench.tokens_per_rank > 0 ? BatchRule::kAnySize : BatchRule::kDividesOverRanks;
  const Config config = config_for_ranks(command, world, rule);
  options.bench.lengths = read_lengths(options.lengths, world);
  context.error_scope = ErrorScope::kThisRank;
  if (options.largest_batch) return find_largest_batch(config, options, world);
  StepBenchReport found = bench_step(config, options.bench, world);
  if (world.rank() != 0) return 0;
  if (options.peak_tflops > 0) found.peak_flops_per_second = 1e12 * options.peak_tflops;
  write_report(report_of(found), options.json);
  return 0;
}

}  // namespace

void add_bench_step_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& step = add_command(
      bench, chosen,
      {.name = "step",
       .description = "Times whole training steps, from the copy of a batch to the device to the "
                      "updated weights, on fresh synthetic batches. Needs no data.",
       .examples = {"bertha bench step --config configs/quickstart.yaml",
                    "mpirun -np 8 bertha bench step --config configs/mlperf_closed_8gpu_448.yaml "
                    "--lengths lengths.txt",
                    "bertha bench step --config configs/mlperf_closed_8gpu_448.yaml "
                    "--tokens-per-rank 24576 --by-operation --json step.json",
                    "bertha bench step --config my.yaml --largest-batch"}});
  StepOptions& options = set_action<StepOptions>(step, chosen, run_step_bench);
  StepBenchOptions& sizes = options.bench;
  add_text(step, "--lengths", options.lengths, "FILE",
           "Counts of sequence lengths 1, 2, ..., one per line, or lines of a length and its count "
           "(default: all at full length)");
  add_count(step, "--tokens-per-rank", sizes.tokens_per_rank,
            "Live tokens of each rank's micro-batch, instead of train.global_batch_seqs", 1,
            int64_t{1} << 30);
  add_count(step, "--steps", sizes.steps, "Steps to time (default {})", 1);
  add_count(step, "--warmup", sizes.warmup_steps, "Steps before the timed ones (default {})");
  add_number(step, "--peak-tflops", options.peak_tflops,
             "Peak for the utilization (default: the data sheet's dense peak of 16-bit GEMMs, for "
             "the H100 and H200)",
             kAboveZero);
  add_flag(step, "--by-operation", sizes.by_operation,
           "Also time each operation; the events cost a little time");
  add_flag(step, "--largest-batch", options.largest_batch,
           "Instead find the largest micro-batch that fits into the memory of one GPU, by running "
           "steps with more and more sequences")
      .excludes("--tokens-per-rank");
  add_json(step, options.json);
  add_config_options(step, ShortOptions::kStepBench);
}

}  // namespace bertha
