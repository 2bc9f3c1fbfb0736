#include "harness/cli/rank_config.h"

#include <string>

#include "harness/cli/config_options.h"
#include "harness/config/check.h"
#include "harness/config/load.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// What rank 0 broadcasts: a configuration as YAML, or why there is none.
std::string config_message(const CLI::App& command, int num_ranks, BatchRule rule) {
  try {
    const Config config = load_from_options(command).config;
    check_config(config, rule == BatchRule::kDividesOverRanks ? num_ranks : 0);
    return "config\n" + to_yaml(config);
  } catch (const Error& error) {
    return concat("error\n", static_cast<int>(error.code), '\n', error.what());
  }
}

}  // namespace

Config config_for_ranks(const CLI::App& command, World& world, BatchRule rule) {
  const std::string message =
      world.broadcast(world.rank() == 0 ? config_message(command, world.size(), rule) : "", 0);
  const size_t line = message.find('\n');
  const std::string rest = message.substr(line + 1);
  if (message.substr(0, line) == "config") return config_from_yaml(rest, "the config of rank 0");
  const size_t second = rest.find('\n');
  throw Error(static_cast<ExitCode>(std::stoi(rest.substr(0, second))), rest.substr(second + 1));
}

}  // namespace bertha
