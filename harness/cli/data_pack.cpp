#include "data/convert/pack.h"

#include <fmt/format.h>

#include <iostream>

#include "harness/cli/data_commands.h"
#include "harness/cli/options.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

struct PackCommand {
  PackOptions options;
  bool dry_run = false;
};

int run_pack(const CLI::App& command, const PackCommand& pack, const CommandContext& context) {
  PackOptions options = pack.options;
  options.source.limits = limits_for(command, options.source.limits, options.source.path);
  if (pack.dry_run) {
    options.output_dir.clear();
  } else if (options.output_dir.empty()) {
    fail(ExitCode::kUsage, "--output is missing; give the folder to write, or --dry-run");
  }
  warn_of_missing(options.source);
  const PackResult result = pack_data(options, progress_lines(context.terminal));
  const PackFigures& figures = result.figures;
  std::cout << fmt::format(
      "sequences      {}\npacks          {}, {:.4f} sequences per pack\n"
      "efficiency     {:.2f}% of {} tokens per pack, planned in {:.2f} s\n",
      grouped_text(figures.num_seqs), grouped_text(figures.num_packs), figures.seqs_per_pack,
      100 * figures.efficiency, options.source.limits.max_seq_tokens, result.planning_seconds);
  if (pack.dry_run) return 0;
  std::cout << fmt::format("{}: {}\nnext: bertha data verify {}\n", options.output_dir,
                           shards_text(result.manifest, result.already_done, result.shards_reused),
                           shell_word(options.output_dir));
  return 0;
}

}  // namespace

void add_data_pack(CLI::App& data, Chosen& chosen) {
  CLI::App& pack = add_command(
      data, chosen,
      {.name = "pack",
       .description =
           "Packs the sequences of a data set into rows of full length: the published packed "
           "layout, in random order. If stopped, the same command continues.",
       .examples = {"bertha data pack data/train --output data/packed",
                    "bertha data pack data/train --dry-run",
                    "bertha data pack hdf5_4320_shards_varlength --output packed --shards 4320 "
                    "--memory-mib 8192"}});
  PackCommand& command = set_action<PackCommand>(pack, chosen, run_pack);
  PackOptions& options = command.options;
  add_source_options(pack, options.source);
  add_text(pack, "-o,--output", options.output_dir, "DIR", "Folder to write");
  add_flag(pack, "--dry-run", command.dry_run, "Only print how full the packs would be");
  add_count(pack, "--max-per-pack", options.max_seqs_per_pack,
            "Maximum number of sequences per pack (default {})", 1, 255);
  add_count(pack, "--shards", options.num_shards,
            "Number of shards to write (default: that of the input files)", 1, 99'999);
  add_count(pack, "--seed", options.seed,
            "Seed of the order of packs and of their composition (default {})");
}

}  // namespace bertha
