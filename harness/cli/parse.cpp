#include "harness/cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "harness/cli/config_options.h"
#include "harness/cli/tools.h"
#include "harness/config/build_info.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

std::vector<std::string> normalized(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  // CLI11 would split "[MASK] or [MASK]" as a list; a leading blank prevents that.
  for (std::string& argument : arguments) {
    if (argument.ends_with("[MASK]")) argument += ' ';
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

// A command and its full name: "bertha data verify".
struct Called {
  const CLI::App* command;
  std::string name;
};

// The program and the sub-commands found so far.
std::vector<Called> commands_met(const CLI::App& app) {
  std::vector<Called> met{{&app, "bertha"}};
  for (auto next = app.get_subcommands(); !next.empty(); next = next.front()->get_subcommands()) {
    met.push_back({next.front(), met.back().name + " " + next.front()->get_name()});
  }
  return met;
}

// "data verify" of "bertha data verify".
std::string without_program(const std::string& name) {
  return name == "bertha" ? "" : name.substr(std::string_view("bertha ").size());
}

// Prefix of errors about a sub-command: "plan: ".
std::string prefix(const std::string& name) {
  return name == "bertha" ? "" : without_program(name) + ": ";
}

void add_commands(const CLI::App& app, const std::vector<std::string>& words,
                  std::vector<std::vector<std::string>>& all) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    all.push_back(words);
    all.back().push_back(command->get_name());
    add_commands(*command, std::vector(all.back()), all);
  }
}

bool is_path_option(const CLI::Option* option) {
  const std::string type = option->get_type_name();
  return type == "PATH" || type == "FILE" || type == "DIR";
}

// An empty file name usually comes from an unset shell variable.
void refuse_empty_paths(const Called& called) {
  for (const CLI::Option* option : called.command->get_options(is_path_option)) {
    if (option->get_group() == kKeyOptionGroup) continue;
    const std::string type = option->get_type_name();
    const std::vector<std::string>& given = option->results();
    if (std::ranges::find(given, "") == given.end()) continue;
    const std::string name =
        option->get_lnames().empty() ? type : "--" + option->get_lnames().front();
    fail(ExitCode::kUsage, prefix(called.name), name, ": found \"\", want a ",
         type == "DIR" ? "folder" : "path");
  }
}

bool is_output(const CLI::Option& option) {
  return option.check_lname("output") || option.check_lname("json");
}

// Whether an earlier --json wrote the file, in which case it may be replaced.
bool is_report(const std::string& path) {
  constexpr std::string_view kBegin = "{\n  \"command\": ";
  std::string begin(kBegin.size(), ' ');
  std::ifstream(path).read(begin.data(), std::ssize(begin));
  return begin == kBegin;
}

// An output replaces the file at its path, which must not be an input of the command.
void refuse_outputs_among_inputs(const Called& called) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be resolved is not refused here
  std::vector<std::string> inputs;
  for (const CLI::Option* option : called.command->get_options(is_path_option)) {
    if (is_output(*option)) continue;
    inputs.insert(inputs.end(), option->results().begin(), option->results().end());
  }
  for (const CLI::Option* option : called.command->get_options(is_path_option)) {
    if (!is_output(*option) || option->count() == 0) continue;
    const std::string output = option->results().back();
    if (!fs::is_regular_file(output, ignored) || is_report(output)) continue;
    const fs::path file = fs::weakly_canonical(output, ignored);
    for (const std::string& input : inputs) {
      const fs::path inside = file.lexically_relative(fs::weakly_canonical(input, ignored));
      if (inside.empty() || *inside.begin() == "..") continue;
      fail(ExitCode::kUsage, prefix(called.name), "--", option->get_lnames().front(), " ", output,
           inside == "." ? " is an input" : concat(" is a file of the input ", input),
           " and would be replaced; choose another file");
    }
  }
}

}  // namespace

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>(
          "Adapts BERT models to your text, trains new ones, and runs MLPerf's benchmark.",
          "bertha")) {
  // One command per line: a later word equal to a command's name is an argument of the first.
  // Sub-commands inherit this.
  app_->require_subcommand(0, 1);
  set_help(*app_, {"bertha train --model bert-base-cased --data shards --output adapted",
                   "bertha train configs/quickstart.yaml",
                   "bertha plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8",
                   "bertha data prepare --help"});
  app_->footer(concat("Commands on the files of runs, if bertha-tools is installed:\n  ",
                      joined(tool_names(), " ")));
  app_->set_version_flag("-V,--version", version_text, "Print version, backends and libraries");
  add_verbosity_options(*app_, chosen_);
  add_train_command(*app_, chosen_);
  add_eval_command(*app_, chosen_);
  add_fill_command(*app_, chosen_);
  add_data_command(*app_, chosen_);
  add_plan_command(*app_, chosen_);
  add_checkpoint_command(*app_, chosen_);
  add_config_command(*app_, chosen_);
  add_doctor_command(*app_, chosen_);
  add_bench_command(*app_, chosen_);
}

CommandLine::~CommandLine() = default;

bool CommandLine::runs_on_ranks() const {
  static const std::set<std::string> on_ranks{"bench", "doctor", "eval", "fill", "train"};
  const auto chosen = app_->get_subcommands();
  return !chosen.empty() && on_ranks.contains(chosen.front()->get_name());
}

bool CommandLine::asks_for_cpu() const {
  try {
    const CLI::App& command = *commands_met(*app_).back().command;
    return backend_of_options(command) == ComputeBackend::kCpu;
  } catch (const Error&) {
    return false;  // reported when the command loads them
  }
}

std::vector<std::vector<std::string>> CommandLine::commands() const {
  std::vector<std::vector<std::string>> all;
  add_commands(*app_, {}, all);
  return all;
}

// The error for the first word that is neither an option nor a command; empty if there is none.
std::string CommandLine::unknown_word() const {
  const std::vector<Called> met = commands_met(*app_);
  std::vector<std::string> left;
  const auto found = std::ranges::find_if(met, [&left](const Called& called) {
    left = called.command->remaining();
    std::erase(left, "--");
    return !left.empty();
  });
  if (found == met.end()) return "";
  const auto& [command, name] = *found;
  const auto see = [&](const std::string& near) {
    return near.empty() ? "see " + name + " --help" : "did you mean " + near + "?";
  };
  if (left.front().starts_with('-')) {
    const std::string word = left.front().substr(0, left.front().find('='));
    const std::vector<std::string> of_last = option_names(*met.back().command);
    const bool too_early = std::ranges::find(of_last, word) != of_last.end();
    const std::string meant =
        word.starts_with("--") && word.size() > 2 ? option_for(*command, word) : "";
    return concat(prefix(name), "unknown option ", shortened(word), "; ",
                  too_early       ? concat("put it after ", met.back().name)
                  : meant.empty() ? see(nearest_word(word, option_names(*command)))
                                  : see(meant));
  }
  std::vector<std::string> commands = command_names(*command);
  if (command == app_.get()) {
    if (std::ranges::count(tool_names(), left.front()) > 0) {
      return concat(left.front(), " must be the first word; write bertha ", left.front());
    }
    commands.insert(commands.end(), tool_names().begin(), tool_names().end());
  }
  return concat(prefix(name), "unknown ", commands.empty() ? "argument " : "command ",
                shortened(left.front()), "; ", see(nearest_word(left.front(), commands)));
}

Parsed CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = normalized(arguments);
  std::ranges::reverse(words);  // CLI11 reads them from the back
  try {
    app_->parse(words);
  } catch (const CLI::CallForHelp&) {
    return {.command = {}, .chosen = {}, .text = app_->help()};
  } catch (const CLI::CallForVersion& version) {
    return {.command = {}, .chosen = {}, .text = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_word();
    const std::string name = commands_met(*app_).back().name;
    fail(ExitCode::kUsage,
         unknown.empty() ? concat(prefix(name), error.what(), "; see ", name, " --help") : unknown);
  }
  const Called last = commands_met(*app_).back();
  if (!chosen_.action) {
    fail(ExitCode::kUsage, prefix(last.name),
         "want a command: ", joined(command_names(*last.command), ", "), "; see ", last.name,
         " --help");
  }
  refuse_empty_paths(last);
  refuse_outputs_among_inputs(last);
  const CLI::Option* const output = last.command->get_option_no_throw("--output");
  return {.command = without_program(last.name),
          .chosen = chosen_,
          .text = std::nullopt,
          .writes_output = output != nullptr && output->count() > 0};
}

}  // namespace bertha
