#include "data/convert/convert.h"

#include <fmt/format.h>

#include <iostream>

#include "data/format/shard_names.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/options.h"
#include "harness/report/text_format.h"
#include "kernels/base/joined.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

constexpr int64_t kMaxShards = 99'999;  // names have five digits
constexpr int64_t kBytesPerMib = int64_t{1} << 20;

struct ConvertCommand {
  ConvertOptions options;
  bool shuffle = false;
  uint64_t seed = 24;
};

int run_convert(const CLI::App& command, const ConvertCommand& convert,
                const CommandContext& context) {
  ConvertOptions options = convert.options;
  options.source.limits = limits_for(command, options.source.limits, options.source.path);
  if (convert.shuffle) options.shuffle_seed = convert.seed;
  warn_of_missing(options.source);
  const ConvertResult result = convert_data(options, progress_lines(context.terminal));
  return print_converted(options, result);
}

}  // namespace

int print_converted(const ConvertOptions& options, const ConvertResult& result) {
  std::string text = fmt::format(
      "{}: {} in {}", options.output_dir, counted_text(result.manifest.num_samples(), "sample"),
      shards_text(result.manifest, result.already_done, result.shards_reused));
  if (result.checksum_differences.empty()) {
    if (!options.checksum_list.empty()) text += fmt::format(": as {} says", options.checksum_list);
  } else {
    text += fmt::format(": {} differences from {}", result.checksum_differences.size(),
                        options.checksum_list);
  }
  std::cout << joined(result.checksum_differences, "", [](const ChecksumDifference& difference) {
    return difference.text() + '\n';
  }) << text << '\n';
  return static_cast<int>(result.checksum_differences.empty() ? ExitCode::kSuccess
                                                              : ExitCode::kData);
}

std::string shards_text(const Manifest& manifest, bool already_done, int64_t reused) {
  return fmt::format("{}{}{}", counted_text(std::ssize(manifest.shards), "shard"),
                     already_done ? ", all there already" : "",
                     reused > 0 ? fmt::format(" ({} of an earlier run)", reused) : "");
}

void add_source_options(CLI::App& command, SourceOptions& source) {
  add_text(command, "path", source.path, "PATH",
           "Folder of shards of any layout, or of TFRecord files, or one file")
      .required();
  add_count(command, "--max-sequences", source.max_seqs,
            "Only the first N sequences, in file order; later files are not opened", 1);
  add_flag(
      command, "--partial", [&source] { source.missing = MissingFiles::kAccept; },
      "Accept missing files in a numbered set");
  add_count(command, "--threads", source.num_threads, "Threads; 0 = one per core (default)");
  add_count(
      command, "--memory-mib", [&source](int64_t mib) { source.memory_bytes = mib * kBytesPerMib; },
      fmt::format("Memory for reordering sequences, over all threads (default {})",
                  source.memory_bytes / kBytesPerMib),
      16, int64_t{1} << 24)
      .type("MIB");
  add_limit_options(command, source.limits);
}

void warn_of_missing(const SourceOptions& source) {
  if (source.missing == MissingFiles::kRefuse) return;
  std::vector<std::string> names;
  for (const std::string& path : list_sequence_files(source.path, MissingFiles::kAccept)) {
    names.push_back(path.substr(path.rfind('/') + 1));
  }
  const std::vector<std::string> missing = missing_of_numbered(names);
  if (missing.empty()) return;
  log_line(LogLevel::kWarning,
           fmt::format("{}: {} of {} files are missing: {}", source.path, missing.size(),
                       missing.size() + names.size(), first_names(missing)));
}

void add_data_convert(CLI::App& data, Chosen& chosen) {
  CLI::App& convert = add_command(
      data, chosen,
      {.name = "convert",
       .description =
           "Converts a data set, TFRecord files or shards of any layout, to HDF5 shards: in "
           "another layout, of another size, or shuffled. If stopped, the same command "
           "continues.",
       .examples = {"bertha data convert tfrecords/ --output data/train --max-sequences 3000000",
                    "bertha data convert hdf5/training --output varlength --shards 4320 "
                    "--chk 4320_shards_varlength.chk",
                    "bertha data convert varlength --output shuffled --shuffle "
                    "--chk 4320_shards_varlength_shuffled.chk",
                    "bertha data convert data/train --output data/fixed --layout fixed"}});
  ConvertCommand& command = set_action<ConvertCommand>(convert, chosen, run_convert);
  ConvertOptions& options = command.options;
  add_source_options(convert, options.source);
  add_text(convert, "-o,--output", options.output_dir, "DIR", "Folder to write").required();
  add_layout_option(convert, options.layout);
  add_count(convert, "--shards", options.num_shards,
            "Number of shards to write, with the published sizes (default: as the input files)", 1,
            kMaxShards);
  add_flag(convert, "--shuffle", command.shuffle,
           "Shuffle all sequences, as the published script does");
  add_count(convert, "--seed", command.seed, "Seed of --shuffle (default {}, the published one)");
  add_text(convert, "--chk", options.checksum_list, "FILE",
           "Published checksum list to compare the written shards with");
}

}  // namespace bertha
