#include "harness/cli/command.h"

#include <CLI/CLI.hpp>

#include "harness/cli/options.h"

namespace bertha {

void add_verbosity_options(CLI::App& command, Chosen& chosen) {
  add_flag(command, "-q,--quiet", chosen.quiet, "Print warnings, errors and results only");
  add_flag(command, "-v,--verbose", chosen.verbose, "Print debug lines too");
}

CLI::App& add_command(CLI::App& parent, Chosen& chosen, const CommandText& text) {
  CLI::App& command = *parent.add_subcommand(text.name, text.description);
  command.group("Commands");
  set_help(command, text.examples);
  add_verbosity_options(command, chosen);
  return command;
}

void set_action(CLI::App& command, Chosen& chosen, const Action& action) {
  command.callback([&chosen, action] { chosen.action = action; });
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* known : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(known->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace bertha
