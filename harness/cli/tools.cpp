#include "harness/cli/tools.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "harness/comm/launcher.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct Retired {
  std::string_view command;
  const char* instead;
};
constexpr Retired kRetired[] = {
    {"log", "bertha check and bertha plot"},
    {"encode", "transformers on the folder that bertha checkpoint export writes"},
    {"replay", "a run from the last checkpoint with train.precision fp32"},
    {"completion", "bertha COMMAND --help"},
    {"man", "bertha --help"}};

/// Replaces this process with the program. Returns if the program does not exist.
void run(const std::string& program, const std::vector<std::string>& arguments) {
  std::string name = program;
  std::vector<char*> words{name.data()};
  std::vector<std::string> copies = arguments;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(program.c_str(), words.data());
  if (errno == ENOENT || errno == ENOTDIR) return;
  fail(ExitCode::kEnvironment, program, " cannot be started: ", std::strerror(errno));
}

}  // namespace

const std::vector<std::string>& tool_names() {
  static const std::vector<std::string> names{"check",    "submit",   "plot",   "compare", "watch",
                                              "diagnose", "timeline", "export", "gains",   "scale"};
  return names;
}

void hand_over_to_tools(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return;
  const std::string& command = arguments.front();
  for (const Retired& retired : kRetired) {
    if (command != retired.command) continue;
    fail(ExitCode::kUsage, command, ": retired command; use ", retired.instead);
  }
  if (std::ranges::find(tool_names(), command) == tool_names().end()) return;
  check_single_process(std::getenv, command);
  std::error_code unknown;  // if so, the tools look for the program themselves
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  if (!self.empty()) setenv("BERTHA", self.c_str(), /*overwrite=*/0);
  run("bertha-tools", arguments);
  run(".venv/bin/bertha-tools", arguments);
  // The checkout whose build/release contains this program may have one; launch/ looks there too.
  run((std::filesystem::path(self).parent_path() / "../../.venv/bin/bertha-tools").string(),
      arguments);
  fail(ExitCode::kEnvironment, command, " needs bertha-tools, which is not installed; run ",
       "python3 -m venv .venv && .venv/bin/pip install harness/tools");
}

}  // namespace bertha
