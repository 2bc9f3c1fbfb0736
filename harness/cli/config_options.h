#pragma once

#include "harness/comm/world.h"
#include "harness/config/load.h"

namespace CLI {
class App;
}

namespace bertha {

/// Which of the short options for --set a command offers: all of a training run, such as
/// --max-steps, those that an evaluation or a benchmark of steps heeds, or none.
enum class ShortOptions : uint8_t { kTraining, kEvaluation, kStepBench, kNone };

/// What help calls the short options. Only theirs may be empty texts: some keys take them.
inline constexpr const char* kKeyOptionGroup = "Short for --set";

/// Adds --config FILE, --set KEY=VALUE and the short options; for training and evaluation
/// --data DIR.
void add_config_options(CLI::App& command, ShortOptions shorts);

/// Adds FILE as another way to write --config FILE.
void add_config_file(CLI::App& command);

/// The configuration that the parsed options of `command` ask for; the last one written wins.
/// Files that it names complete it, for that many ranks (complete_from_files()).
///
/// Errors    Error(kUsage) as load_config, with options in messages as the user wrote them; also as
///           complete_from_files().
LoadedConfig load_from_options(const CLI::App& command, int num_ranks = 1);

/// How this command sets what an option of another program sets ("--batch-size"): the option or
/// --set with the key; "" if nothing is known of it.
std::string option_for(const CLI::App& command, std::string_view option);

/// The device that the options ask for; opens only the files of the configuration.
ComputeBackend backend_of_options(const CLI::App& command);

/// Whether the training batch must divide over the ranks of this run.
enum class BatchRule { kDividesOverRanks, kAnySize };

/// The configuration of the parsed options, the same on all ranks: rank 0 reads the files,
/// checks them against the number of ranks and broadcasts the result. Collective.
///
/// Errors    every rank throws the Error of rank 0.
Config config_for_ranks(const CLI::App& command, World& world, BatchRule rule);

}  // namespace bertha
