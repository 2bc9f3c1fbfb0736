#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "harness/cli/command.h"
#include "harness/report/text_format.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

constexpr int64_t kColumns = 80;
constexpr size_t kTextColumn = 32;  // first column of an option's explanation

std::string row(const std::string& left, const std::string& text) {
  const std::string margin(kTextColumn, ' ');
  return (left.size() < kTextColumn ? fmt::format("{:<{}}", left, kTextColumn)
                                    : left + '\n' + margin) +
         wrapped_words(text, kColumns, kTextColumn, kTextColumn) + '\n';
}

std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";  // a flag
  const bool many = option.get_expected_max() > 1 && option.get_allow_extra_args();
  return option.get_type_name() + (many ? "..." : "");
}

/// Positional arguments; one that also has an option's name is shown as that option.
std::vector<const CLI::Option*> arguments(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return option->get_positional() && option->get_lnames().empty();
  });
}

std::string names_of(const CLI::Option& option) {
  std::string names = option.get_snames().empty() ? "    " : "-" + option.get_snames().front();
  for (const std::string& name : option.get_lnames()) {
    names += (names.front() == '-' || names.back() != ' ' ? ", --" : "--") + name;
  }
  return names;
}

/// Formats `--help`: what the command does, examples, then every option with its type but without
/// CLI11's notes on checks. Lines have at most 80 columns, except examples, so that each can be
/// copied whole.
class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::vector<std::string> examples) : examples_(std::move(examples)) {}

  std::string make_description(const CLI::App* app) const override {
    return fmt::format("{}\n\nExamples:\n  {}\n\n",
                       wrapped_words(app->get_description(), kColumns, 0, 0),
                       joined(examples_, "\n  "));
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "Usage: " + name + " [OPTIONS]";
    for (const CLI::Option* argument : arguments(*app)) text += " " + type_of(*argument);
    if (!app->get_subcommands([](const CLI::App*) { return true; }).empty()) text += " COMMAND";
    return text + '\n';
  }

  std::string make_positionals(const CLI::App* app) const override {
    std::string text;
    for (const CLI::Option* argument : arguments(*app)) text += make_option(argument, true);
    return text.empty() ? "" : "\nArguments:\n" + text;
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string type = type_of(*option);
    if (is_positional) return row("  " + type, option->get_description());
    return row("  " + names_of(*option) + (type.empty() ? "" : " " + type),
               option->get_description() + (option->get_required() ? " (required)" : ""));
  }

  // A list of commands shows only the first sentence. A full stop inside a word, as in config.json,
  // does not end it.
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = command->get_description() + ' ';
    const size_t end = std::min({text.find(". "), text.find("; "), text.find(".\n")});
    return row("  " + command->get_name(), text.substr(0, end));
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    // CLI11 separates parts by one or two empty lines, and ends with one.
    std::string text = Formatter::make_help(app, std::move(name), mode);
    for (size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
  }

 private:
  std::vector<std::string> examples_;
};

}  // namespace

void set_help(CLI::App& app, const std::vector<std::string>& examples) {
  app.formatter(std::make_shared<HelpFormat>(examples));
  app.set_help_flag("-h,--help", "Print this text and exit");
}

}  // namespace bertha
