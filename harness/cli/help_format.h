#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace bertha {

/// How `--help` reads: what the command does, examples, then every option with its type and
/// nothing of how the library checks it. Lines end by column 80, except examples, which are to be
/// copied whole.
class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::vector<std::string> examples) : examples_(std::move(examples)) {}

  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_positionals(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;

 private:
  std::vector<std::string> examples_;
};

}  // namespace bertha
