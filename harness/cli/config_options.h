#pragma once

#include "harness/comm/world.h"
#include "harness/config/load.h"

namespace CLI {
class App;
}

namespace bertha {

/// The short options for --set that a command offers: all of a training run, such as --max-steps,
/// those that affect an evaluation or a benchmark of steps, or none.
enum class ShortOptions : uint8_t { kTraining, kEvaluation, kStepBench, kNone };

/// Heading of the short options in help. Only these options may be empty: some keys allow it.
inline constexpr const char* kKeyOptionGroup = "Short for --set";

/// Adds --config FILE, --set KEY=VALUE and the short options; for training and evaluation
/// --data DIR.
void add_config_options(CLI::App& command, ShortOptions shorts);

/// Adds FILE as another way to write --config FILE.
void add_config_file(CLI::App& command);

/// The configuration that the parsed options of `command` specify; the last value of a key wins.
/// complete_from_files() completes it from the files that it names, for `num_ranks` ranks.
///
/// Errors    Error(kUsage) as load_config, with options in messages as the user wrote them; also as
///           complete_from_files().
LoadedConfig load_from_options(const CLI::App& command, int num_ranks = 1);

/// This command's counterpart of another program's option ("--batch-size"): an option, or --set
/// with a key; "" if the option is unknown.
std::string option_for(const CLI::App& command, std::string_view option);

/// The device that the options select; opens only the configuration files.
ComputeBackend backend_of_options(const CLI::App& command);

/// Whether the training batch must divide over the ranks of this run.
enum class BatchRule { kDividesOverRanks, kAnySize };

/// The configuration of the parsed options, the same on all ranks: rank 0 reads the files,
/// checks them against the number of ranks and broadcasts the result. Collective.
///
/// Errors    every rank throws the Error of rank 0.
Config config_for_ranks(const CLI::App& command, World& world, BatchRule rule);

}  // namespace bertha
