#include "harness/cli/help_format.h"

#include <algorithm>
#include <sstream>

namespace bertha {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kTextColumn = 32;  // where the explanation of an option starts

/// `text` in lines of at most kColumns, each but the first after `indent` blanks; `used` columns of
/// the first one are taken.
std::string wrapped(const std::string& text, size_t used, size_t indent) {
  std::string result;
  std::istringstream words(text);
  size_t column = used;
  bool first = true;
  for (std::string word; words >> word; first = false) {
    // "(default 10)" stays together.
    if (std::string value; word == "(default" && words >> value) word += ' ' + value;
    if (!first && column + 1 + word.size() > kColumns) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result + '\n';
}

std::string row(std::string left, const std::string& text) {
  if (left.size() + 1 > kTextColumn) {
    left += '\n' + std::string(kTextColumn, ' ');
  } else {
    left.resize(kTextColumn, ' ');
  }
  return left + wrapped(text, kTextColumn, kTextColumn);
}

std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";  // a flag
  const bool many = option.get_expected_max() > 1 && option.get_allow_extra_args();
  return option.get_type_name() + (many ? "..." : "");
}

/// Positional arguments; one that has an option's name too is shown as that option.
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

}  // namespace

std::string HelpFormat::make_description(const CLI::App* app) const {
  std::string text = wrapped(app->get_description(), 0, 0) + "\nExamples:\n";
  for (const std::string& example : examples_) text += "  " + example + '\n';
  return text + '\n';
}

std::string HelpFormat::make_usage(const CLI::App* app, std::string name) const {
  std::string text = "Usage: " + name + " [OPTIONS]";
  for (const CLI::Option* argument : arguments(*app)) text += " " + type_of(*argument);
  if (!app->get_subcommands([](const CLI::App*) { return true; }).empty()) text += " COMMAND";
  return text + '\n';
}

std::string HelpFormat::make_positionals(const CLI::App* app) const {
  std::string text;
  for (const CLI::Option* argument : arguments(*app)) text += make_option(argument, true);
  return text.empty() ? "" : "\nArguments:\n" + text;
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string type = type_of(*option);
  if (is_positional) return row("  " + type, option->get_description());
  return row("  " + names_of(*option) + (type.empty() ? "" : " " + type),
             option->get_description() + (option->get_required() ? " (required)" : ""));
}

// What it does is enough in a list of commands: its help says the rest. A stop inside a word, as in
// config.json, ends nothing.
std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  const std::string text = command->get_description() + ' ';
  const size_t end = std::min({text.find(". "), text.find("; "), text.find(".\n")});
  return row("  " + command->get_name(), text.substr(0, end));
}

std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  // The library separates parts by one empty line or by two, and ends with one.
  std::string text = Formatter::make_help(app, std::move(name), mode);
  for (size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace bertha
