#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/command.h"

namespace bertha {

/// The outcome of parsing: an action, or text to print for --help and --version.
struct Parsed {
  std::string command;  // "data verify"
  Chosen chosen;
  std::optional<std::string> text;  // for standard output, then success
  bool writes_output = false;       // --output is given
};

/// The whole command line of the program.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  /// `arguments` without the name of the program. Underscores in option names count as dashes, and
  /// `help COMMAND` as `COMMAND --help`.
  ///
  /// Errors    Error(kUsage), with the nearest option or command after a typo.
  Parsed parse(const std::vector<std::string>& arguments);
  /// Whether the command that parse() found runs on ranks; valid after a parse error too, which
  /// rank 0 then prints for all ranks.
  bool runs_on_ranks() const;
  /// Whether the options and the configuration files select the CPU; false if these cannot be read,
  /// for example on a rank without the files.
  bool asks_for_cpu() const;
  /// The words of every command: {"data"}, {"data", "verify"} and so on.
  std::vector<std::vector<std::string>> commands() const;

 private:
  std::string unknown_word() const;

  std::unique_ptr<CLI::App> app_;
  Chosen chosen_;
};

}  // namespace bertha
