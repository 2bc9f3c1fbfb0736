#include "harness/cli/command.h"

namespace bertha {

void add_verbosity_options(CLI::App& command, Chosen& chosen) {
  command.add_flag("-q,--quiet", chosen.quiet, "Print warnings and errors only");
  command.add_flag("-v,--verbose", chosen.verbose, "Print debug lines too");
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

}  // namespace bertha
