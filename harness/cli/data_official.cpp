#include <filesystem>
#include <iostream>

#include "data/format/checksum_list.h"
#include "harness/cli/data_commands.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr uint64_t kOfficialShuffleSeed = 24;

/// Before days of work with a list that cannot fit.
void check_list(const std::string& path, int64_t num_shards) {
  if (path.empty()) return;
  const std::string what = unrelated_list(read_checksum_list(path), numbered_names(num_shards));
  if (!what.empty()) fail(ExitCode::kUsage, "--chk ", path, ": ", what);
}

}  // namespace

int run_official(PrepareOptions options, const std::string& checksum_list,
                 const CommandContext& context) {
  if (options.num_shards == 0) options.num_shards = kOfficialShards;
  check_list(checksum_list, options.num_shards);
  const std::filesystem::path folder(options.output_dir);
  const std::string name = concat("hdf5_", options.num_shards, "_shards_varlength");
  options.output_dir = (folder / name).string();
  const PrepareSummary ordered = prepare_with_progress(options, context.terminal);
  print_prepared(options, ordered);

  const ConvertOptions shuffle{.source = {.path = options.output_dir,
                                          .limits = ordered.manifest.limits,
                                          .num_threads = options.workers},
                               .output_dir = (folder / (name + "_shuffled")).string(),
                               .shuffle_seed = kOfficialShuffleSeed,
                               .checksum_list = checksum_list};
  const ConvertResult shuffled = convert_data(shuffle, progress_lines(context.terminal));
  const int code = print_converted(shuffle, shuffled);
  if (code == 0) {
    std::cout << "next: train on " << shuffle.output_dir << "; " << options.output_dir
              << " is not needed for it\n";
  }
  return code;
}

}  // namespace bertha
