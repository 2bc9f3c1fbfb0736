#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/comm/world.h"
#include "harness/config/terminal.h"

namespace CLI {
class App;
}

namespace bertha {

/// Which ranks throw errors from here on: all ranks the same one (a wrong config: rank 0 prints it
/// and all return), or possibly a single rank (it prints the error and ends the others). In either
/// case, collectives and system calls may fail on a single rank.
enum class ErrorScope : uint8_t { kEveryRank, kThisRank };

/// Arguments of a command's action.
struct CommandContext {
  World* world = nullptr;  // null in commands that run without ranks
  Terminal terminal;
  std::vector<std::string> arguments;  // as given, without the program's name
  ErrorScope error_scope = ErrorScope::kEveryRank;
};

/// Runs a parsed command line and returns the exit code.
using Action = std::function<int(CommandContext&)>;

/// Filled in by parsing: the last sub-command on the line sets its action.
struct Chosen {
  Action action;
  bool quiet = false;    // -q: warnings and errors only
  bool verbose = false;  // -v: debug lines too
};

struct CommandText {
  std::string name;
  std::string description;
  std::vector<std::string> examples;  // whole command lines
};

/// Adds a sub-command whose help starts with its description and examples.
CLI::App& add_command(CLI::App& parent, Chosen& chosen, const CommandText& text);
/// Sets what the command does if it is the one on the command line.
void set_action(CLI::App& command, Chosen& chosen, const Action& action);
/// The same with values that the command's options fill in; returns these. `run` is called with
/// them; if it has more parameters, the context comes after them and the command before.
template <class Options, class Run>
Options& set_action(CLI::App& command, Chosen& chosen, Run run) {
  const auto options = std::make_shared<Options>();
  set_action(command, chosen, [&, options, run](CommandContext& context) {
    if constexpr (std::is_invocable_v<Run, CLI::App&, Options&, CommandContext&>) {
      return run(command, *options, context);
    } else if constexpr (std::is_invocable_v<Run, Options&, CommandContext&>) {
      return run(*options, context);
    } else {
      return run(*options);
    }
  });
  return *options;
}
/// -q and -v.
void add_verbosity_options(CLI::App& command, Chosen& chosen);
/// The same examples-first help for the program itself.
void set_help(CLI::App& app, const std::vector<std::string>& examples);

/// Names of the sub-commands of a command, in the order of its help.
std::vector<std::string> command_names(const CLI::App& command);
/// "--config", "--set" and so on.
std::vector<std::string> option_names(const CLI::App& command);

// Each is defined in a source file of the same name.
void add_train_command(CLI::App& program, Chosen& chosen);
void add_fill_command(CLI::App& program, Chosen& chosen);
void add_eval_command(CLI::App& program, Chosen& chosen);
void add_data_command(CLI::App& program, Chosen& chosen);
void add_plan_command(CLI::App& program, Chosen& chosen);
void add_checkpoint_command(CLI::App& program, Chosen& chosen);
void add_config_command(CLI::App& program, Chosen& chosen);
void add_doctor_command(CLI::App& program, Chosen& chosen);
void add_bench_command(CLI::App& program, Chosen& chosen);
void add_bench_loader_command(CLI::App& bench, Chosen& chosen);
void add_bench_step_command(CLI::App& bench, Chosen& chosen);
void add_bench_kernels_command(CLI::App& bench, Chosen& chosen);

}  // namespace bertha
