#include "harness/cli/parse.h"

#include <algorithm>

#include "harness/config/build_info.h"
#include "harness/config/keys.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string version_text() {
  const BuildInfo info = build_info();
  std::string text = concat("bertha ", info.version, " (", info.git_hash,
                            ")\nbackends: ", info.backends, "\ncompiler: ", info.compiler);
  for (const auto& [name, version] : info.libraries) text += concat('\n', name, ' ', version);
  return text;
}

std::vector<std::string> normalized(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    const auto end =
        argument.begin() + static_cast<int64_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end, '_', '-');
  }
  return arguments;
}

// The sub-command that the words so far have led to, and how it is called.
const CLI::App& deepest(const CLI::App& app, std::string& name) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return app;
  name += " " + chosen.back()->get_name();
  return deepest(*chosen.back(), name);
}

// "plan: " in front of what concerns a sub-command.
std::string prefix(const std::string& name) {
  return name == "bertha" ? "" : name.substr(std::string_view("bertha ").size()) + ": ";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

}  // namespace

CommandLine::CommandLine()
    : app_("Trains BERT by the rules of MLPerf, from text to target.", "bertha") {
  set_help(app_, {"bertha train --config configs/quickstart.yaml",
                  "bertha plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8",
                  "bertha data prepare --help"});
  app_.set_version_flag("--version", version_text, "Print version, backends and libraries");
  add_train_command(app_, chosen_);
  add_eval_command(app_, chosen_);
  add_encode_command(app_, chosen_);
  add_data_command(app_, chosen_);
  add_plan_command(app_, chosen_);
  add_checkpoint_command(app_, chosen_);
  add_config_command(app_, chosen_);
  add_log_command(app_, chosen_);
  add_submit_command(app_, chosen_);
  add_bench_command(app_, chosen_);
}

// What is wrong with the first word that no option or command took; empty when all were taken.
std::string CommandLine::unknown_word() const {
  const std::vector<std::string> words = app_.remaining(true);
  if (words.empty()) return "";
  const auto option = std::find_if(words.begin(), words.end(),
                                   [](const std::string& word) { return word.starts_with('-'); });
  const std::string& whole = option == words.end() ? words.front() : *option;
  const std::string word = whole.substr(0, whole.find('='));
  std::string name = "bertha";
  const CLI::App& command = deepest(app_, name);
  const std::vector<std::string> commands = command_names(command);
  const bool is_option = word.starts_with('-') && words.front().starts_with('-');
  if (is_option) {
    const std::string near = nearest_word(word, option_names(command));
    return concat(prefix(name), "unknown option ", word, "; ",
                  near.empty() ? "see " + name + " --help" : "did you mean " + near + "?");
  }
  const std::string& first = words.front();
  const std::string near = nearest_word(first, commands);
  return concat(prefix(name), "unknown ", commands.empty() ? "argument " : "command ", first, "; ",
                near.empty() ? "see " + name + " --help" : "did you mean " + near + "?");
}

Parsed CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = normalized(arguments);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app_.parse(words);
  } catch (const CLI::CallForHelp&) {
    return {.chosen = {}, .text = app_.help()};
  } catch (const CLI::CallForVersion& version) {
    return {.chosen = {}, .text = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_word();
    std::string name = "bertha";
    deepest(app_, name);
    fail(ExitCode::kUsage,
         unknown.empty() ? concat(prefix(name), error.what(), "; see ", name, " --help") : unknown);
  }
  if (!chosen_.action) {
    std::string name = "bertha";
    std::string commands;
    for (const std::string& command : command_names(deepest(app_, name))) {
      commands += (commands.empty() ? "" : ", ") + command;
    }
    fail(ExitCode::kUsage, prefix(name), "want a command: ", commands, "; see ", name, " --help");
  }
  return {.chosen = chosen_, .text = std::nullopt};
}

}  // namespace bertha
