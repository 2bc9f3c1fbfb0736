#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <sstream>
#include <string_view>

#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/config/keys.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct CompletionOptions {
  std::string shell;
  std::vector<std::string> line;  // the words behind the program, up to the cursor
};

struct Script {
  std::string_view shell;
  std::string_view text;
};

// Each asks the program itself, and the shell offers files where it knows no word.
constexpr std::array kScripts{
    Script{"bash", R"(_bertha() {
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" completion words -- \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  if [[ ${COMPREPLY-} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _bertha bertha
)"},
    Script{"zsh", R"(#compdef bertha
_bertha() {
  local -a found
  found=("${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  if [[ -z "$found" ]]; then _files; elif [[ "$found" == *= ]]; then compadd -S '' -a found
  else compadd -a found; fi
}
compdef _bertha bertha
)"},
    Script{"fish", R"(function __bertha_words
  set -l line (commandline -opc)
  $line[1] completion words -- $line[2..] (commandline -ct) 2> /dev/null
end
complete -c bertha -f -n 'count (__bertha_words) > /dev/null' -a '(__bertha_words)'
)"},
};

// "auto|never|DIR": the words that can be written as they are.
std::vector<std::string> choices(const CLI::Option& option) {
  std::vector<std::string> words;
  if (option.get_type_name() == "KEY=VALUE") {
    for (const Key& key : config_keys()) words.push_back(std::string(key.path) + "=");
  }
  if (option.get_type_name().find('|') == std::string::npos) return words;
  std::istringstream types(option.get_type_name());
  for (std::string word; std::getline(types, word, '|');) {
    if (std::ranges::none_of(word, [](char c) { return c >= 'A' && c <= 'Z'; })) {
      words.push_back(word);
    }
  }
  return words;
}

// What can stand in place of the last word of the line.
std::vector<std::string> words_to_complete(const CLI::App& program,
                                           const std::vector<std::string>& line) {
  const CLI::App* command = &program;
  const CLI::Option* awaits_value = nullptr;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    const std::string& word = line[i];
    if (word == "=") continue;  // bash divides --backend=cpu there
    if (awaits_value != nullptr) {
      awaits_value = nullptr;
    } else if (word.starts_with('-')) {
      const CLI::Option* const option = command->get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_max() > 0) awaits_value = option;
    } else if (const CLI::App* const next = find_command(*command, word)) {
      command = next;
    }
  }
  if (awaits_value != nullptr) return choices(*awaits_value);
  if (!line.empty() && line.back().starts_with('-')) return option_names(*command);
  std::vector<std::string> words = command_names(*command);
  for (const CLI::Option* option : command->get_options()) {
    if (!option->get_positional()) continue;
    for (const std::string& word : choices(*option)) words.push_back(word);
  }
  return words;
}

int run_completion(const CLI::App& program, const CompletionOptions& options) {
  if (options.shell == "words") {
    const std::string begun = options.line.empty() ? "" : options.line.back();
    for (const std::string& word : words_to_complete(program, options.line)) {
      if (word.starts_with(begun)) std::cout << word << '\n';
    }
    return 0;
  }
  const auto script = std::ranges::find_if(
      kScripts, [&](const Script& known) { return known.shell == options.shell; });
  if (script == kScripts.end()) {
    fail(ExitCode::kUsage, "completion: found \"", options.shell, "\", want bash|zsh|fish");
  }
  std::cout << script->text;
  return 0;
}

}  // namespace

void add_completion_command(CLI::App& program, Chosen& chosen) {
  CLI::App& completion = add_command(
      program, chosen,
      {.name = "completion",
       .description =
           "Prints a script that makes a shell complete commands, options, their values and the "
           "keys of --set. The scripts ask `bertha completion words -- WORD...`.",
       .examples = {"eval \"$(bertha completion bash)\"",
                    "bertha completion zsh > ~/.zsh/functions/_bertha",
                    "bertha completion fish > ~/.config/fish/completions/bertha.fish"}});
  const auto options = std::make_shared<CompletionOptions>();
  add_text(completion, "shell", options->shell, "bash|zsh|fish", "The shell").required();
  add_text(completion, "line", options->line, "WORD", "Behind `words --`: the line so far");
  set_action(completion, chosen,
             [&program, options](CommandContext&) { return run_completion(program, *options); });
}

}  // namespace bertha
