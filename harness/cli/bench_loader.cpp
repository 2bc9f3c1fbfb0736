#include "data/pipeline/bench_loader.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "data/format/shard_names.h"
#include "data/pipeline/pipeline.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/comm/watchdog.h"
#include "harness/config/config.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

// Special ids of the published vocabulary, which synthetic shards use too.
constexpr SpecialTokens kPublishedIds{
    .pad = 0, .unknown = 100, .classify = 101, .separator = 102, .mask = 103};

struct LoaderOptions {
  std::string data;
  Masking masking = Masking::kStored;
  LoaderBenchOptions bench;
};

int run_loader(LoaderOptions& options, CommandContext& context) {
  World& world = *context.world;
  context.error_scope = ErrorScope::kThisRank;
  if (!options.data.empty()) options.bench.pipeline.shards = list_shards(options.data);
  PipelineOptions& pipeline = options.bench.pipeline;
  if (options.masking == Masking::kDynamic) {
    pipeline.masks = MaskRule{.special = kPublishedIds, .vocab_size = pipeline.limits.vocab_size};
  }
  const auto watchdog = make_watchdog(world, Config{}.train.hang_timeout_minutes * 60);
  const std::unique_ptr<Transport> transport = world.make_transport();
  const LoaderBenchResult result = bench_loader(options.bench, *transport);
  if (world.rank() != 0) return 0;
  std::cout << fmt::format(
      "loader: {}, global batch {}, {} steps in {:.2f} s\n"
      "  sequences/s          {:.0f}\n"
      "  tokens/s             {}\n"
      "  tokens per sequence  {:.1f}\n"
      "  wait per step        {} ms\n"
      "  fullest rank / mean  {:.4f}\n",
      counted_text(world.size(), "rank"), options.bench.pipeline.global_batch_seqs, result.steps,
      result.elapsed_s, result.seqs_per_s_global, scaled_text(result.tokens_per_s_global),
      result.mean_tokens_per_seq, ms_text(result.mean_wait_ms), result.most_over_mean_tokens);
  return 0;
}

}  // namespace

void add_bench_loader_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& loader = add_command(
      bench, chosen,
      {.name = "loader",
       .description =
           "Measures how many sequences per second the data pipeline delivers, including "
           "the exchange between ranks.",
       .examples = {"bertha bench loader", "mpirun -np 2 bertha bench loader --seconds 10",
                    "bertha bench loader --data data/train --exchange-padding off"}});
  LoaderOptions& options = set_action<LoaderOptions>(loader, chosen, run_loader);
  LoaderBenchOptions& sizes = options.bench;
  add_text(loader, "--data", options.data, "DIR", "Folder of shards (default: synthetic ones)");
  add_text(loader, "--scratch", sizes.scratch_folder, "DIR", "Folder for the synthetic shards");
  add_number(loader, "--seconds", sizes.timed_s, "Time to measure (default 5)", {.most = 1e6})
      .type("S");
  const auto count = [&](const std::string& name, int64_t& value, const std::string& doc) {
    add_count(loader, name, value, doc + " (default {})", 1);
  };
  count("--global-batch", sizes.pipeline.global_batch_seqs, "Sequences per step over all ranks");
  count("--grad-accum", sizes.pipeline.micro_batches_per_step, "Micro-batches per rank and step");
  count("--window-shards", sizes.pipeline.window_shards, "Shards in memory at a time");
  count("--prefetch-steps", sizes.pipeline.prefetch_steps, "Batches ready ahead of the step");
  count("--max-seq-tokens", sizes.pipeline.limits.max_seq_tokens, "Longest sequence");
  count("--max-masked-per-seq", sizes.pipeline.limits.max_masked_per_seq,
        "Maximum number of masked tokens per sequence");
  count("--vocab-size", sizes.pipeline.limits.vocab_size, "Entries of the vocabulary");
  add_choice<Masking>(
      loader, "--masking", options.masking,
      "Masks: those of the shards (default), or drawn anew with the special ids of the "
      "published vocabulary");
  add_choice<ExchangePadding>(loader, "--exchange-padding", sizes.pipeline.exchange,
                              "How ranks balance their token counts (default lengths)");
}

}  // namespace bertha
