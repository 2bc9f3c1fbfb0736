#include "harness/cli/parse.h"
#include "harness/cli/tools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/files.h"
#include "tests/support/source_dir.h"
#include "tests/support/words.h"

namespace bertha {
namespace {

// Of every command, and of the program itself.
std::vector<Words> all_commands() {
  std::vector<Words> all = CommandLine().commands();
  all.insert(all.begin(), Words{});
  return all;
}

std::string help(const Words& command) {
  return CommandLine().parse(with(command, {"--help"})).text.value_or("");
}

struct Outcome {
  std::string command;  // that would run
  std::string error;    // or why none
};

Outcome outcome(const Words& words) {
  try {
    return {.command = CommandLine().parse(words).command, .error = ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kUsage) << joined(words);
    return {.command = "", .error = error.what()};
  }
}

TEST(Parse, KnowsEveryCommand) {
  const std::vector<Words> all = all_commands();
  for (const Words& known : {Words{"train"}, {"fill"}, {"data", "pack"}, {"bench", "kernels"}}) {
    EXPECT_THAT(all, Contains(known));
  }
}

// A word behind a command belongs to that command, whatever else it names: it is the sub-command,
// an argument, or a mistake that is told, and never another command.
TEST(Parse, TheNameOfAnotherCommandBehindOneIsNoCommand) {
  const std::vector<Words> all = all_commands();
  std::set<std::string> names{"help"};
  for (const Words& command : all) names.insert(command.begin(), command.end());
  for (const Words& command : all) {
    const std::string prefix = command.empty() ? "" : joined(command) + ": ";
    for (const std::string& name : names) {
      for (const Words& more : {Words{name}, Words{"x", name}}) {
        if (std::count(all.begin(), all.end(), with(command, {more.front()})) > 0) continue;
        const Words line = with(command, more);
        const std::string& first = line.front();
        if (first == "help" || std::ranges::count(tool_names(), first) > 0) continue;
        const Outcome found = outcome(line);
        if (found.error.empty()) {
          EXPECT_EQ(found.command, joined(command)) << joined(line);
          EXPECT_THAT(help(command), HasSubstr("\nArguments:\n")) << joined(line);
        } else {
          EXPECT_THAT(found.error, StartsWith(prefix)) << joined(line);
          EXPECT_THAT(found.error, Not(HasSubstr("\n"))) << joined(line);
          EXPECT_THAT(found.error, AnyOf(HasSubstr("unknown command " + more.front() + ";"),
                                         HasSubstr("unknown argument " + more.front() + ";"),
                                         HasSubstr("unknown argument " + more.back() + ";"),
                                         HasSubstr(" is required;")))
              << joined(line);
        }
      }
    }
  }
}

TEST(Parse, WordsInFrontOfACommandAreNotItsOwn) {
  EXPECT_EQ(outcome({"zebra", "train"}).error, "unknown command zebra; see bertha --help");
  EXPECT_EQ(outcome({"--seed=3", "train"}).error,
            "unknown option --seed; put it after bertha train");
  EXPECT_EQ(outcome({"data", "--threads", "2", "verify", "x"}).error,
            "data: unknown option --threads; put it after bertha data verify");
  EXPECT_EQ(outcome({"-q", "train"}).command, "train");
  EXPECT_EQ(outcome({"data", "-q", "verify", "x"}).command, "data verify");
}

TEST(Parse, TellsWhichCommandsRunOnRanks) {
  const auto on_ranks = [](const Words& words) {
    CommandLine line;
    try {
      line.parse(words);
    } catch (const Error&) {
    }
    return line.runs_on_ranks();
  };
  for (const char* const line : {"train", "-q train", "eval --checkpoint x", "bench loadr",
                                 "bench step --help", "help train", "fill", "train plan"}) {
    EXPECT_TRUE(on_ranks(split(line))) << line;
  }
  for (const char* const line : {"", "plan", "data train", "config show train", "--version", "x"}) {
    EXPECT_FALSE(on_ranks(split(line))) << line;
  }
}

TEST(Parse, AnEmptyPathIsRefusedByName) {
  EXPECT_EQ(outcome({"data", "verify", ""}).error, "data verify: PATH: found \"\", want a path");
  EXPECT_EQ(outcome({"train", "--config", ""}).error, "train: --config: found \"\", want a path");
  EXPECT_EQ(outcome({"eval", "--checkpoint", ""}).error,
            "eval: --checkpoint: found \"\", want a path");
  EXPECT_EQ(outcome({"data", "convert", "x", "-o", ""}).error,
            "data convert: --output: found \"\", want a folder");
  EXPECT_EQ(outcome({"data", "vocab", "--text", "a", "", "--output", "v"}).error,
            "data vocab: --text: found \"\", want a path");
  EXPECT_EQ(outcome({"train", "--init-checkpoint", ""}).command, "train") << "random weights";
}

TEST(Parse, EveryCommandHasHelpThatStartsWithThreeExamples) {
  for (const Words& command : all_commands()) {
    const std::string name = joined(command, "bertha");
    const std::string text = help(command);
    const size_t examples = text.find("\nExamples:\n");
    const size_t usage = text.find("\nUsage: " + name + " [OPTIONS]");
    ASSERT_NE(examples, std::string::npos) << name;
    ASSERT_NE(usage, std::string::npos) << name << '\n' << text;
    EXPECT_LT(examples, usage) << name;
    const std::string between = text.substr(examples + 11, usage - examples - 11);
    EXPECT_GE(std::count(between.begin(), between.end(), '\n'), 3) << name;
  }
}

// Help is for people: nothing of how the library stores choices or checks numbers.
TEST(Parse, HelpIsReadable) {
  for (const Words& command : all_commands()) {
    const std::string name = joined(command, "bertha");
    const std::string text = help(command);
    for (const char* const garbage :
         {"{", "->", "[0 - ", ":INT", ":FLOAT", ":POSITIVE", "REQUIRED", "SUBCOMMAND", "\n\n\n"}) {
      EXPECT_THAT(text, Not(HasSubstr(garbage))) << name;
    }
    EXPECT_THAT(text, Not(EndsWith("\n\n"))) << name;
    std::istringstream lines(text.substr(text.find("\nUsage: ")));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(Parse, HelpKeepsNamesOfFilesAndTypesWhole) {
  EXPECT_THAT(help({"checkpoint"}), HasSubstr("config.json, model.safetensors"));
  EXPECT_THAT(help({"train"}), HasSubstr("--profile-steps A:B "));
  EXPECT_THAT(help({"bench", "kernels"}), HasSubstr("--dtype bf16|fp16|fp32 "));
}

// The words behind "bertha" in a line of the help or a README; none where another program runs.
Words words_of_example(std::string line) {
  for (const char* const shell : {" #", " |", " >"}) line = line.substr(0, line.find(shell));
  Words words = split(line);
  const auto program = std::find(words.begin(), words.end(), "bertha");
  if (program == words.end()) return {};
  return {program + 1, words.end()};
}

TEST(Parse, EveryExampleOfTheHelpParses) {
  for (const Words& command : all_commands()) {
    const std::string text = help(command);
    const size_t begin = text.find("\nExamples:\n") + 11;
    std::istringstream lines(text.substr(begin, text.find("\nUsage: ") - begin));
    int64_t of_the_command = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      const Words words = words_of_example(line);
      if (words.empty()) continue;  // another program, which reads what the command wrote
      EXPECT_EQ(outcome(words).error, "") << line;
      if (std::equal(command.begin(), command.end(), words.begin())) ++of_the_command;
    }
    EXPECT_GE(of_the_command, 2) << joined(command);
  }
}

// Code spans and indented lines that start the program, with at least an argument.
std::vector<Words> examples_in(const std::string& text) {
  const std::string indent = "\n    ";
  std::vector<Words> found;
  size_t end = 0;
  for (size_t at = 0; at < text.size(); at = end) {
    end = at + 1;
    const bool is_span = text[at] == '`';
    if (!is_span && text.compare(at, indent.size(), indent) != 0) continue;
    const size_t begin = at + (is_span ? 1 : indent.size());
    end = std::min(text.find(is_span ? '`' : '\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (is_span) ++end;
    const Words all = split(line);
    const bool starts = !all.empty() && (all.front() == "bertha" || all.front() == "mpirun");
    const Words words = words_of_example(line);
    const bool elided = std::find(words.begin(), words.end(), "...") != words.end();
    if (starts && !words.empty() && !elided) found.push_back(words);
  }
  return found;
}

TEST(Parse, EveryCommandInTheReadmesParses) {
  const std::vector<Words> all = all_commands();
  size_t count = 0;
  for (const std::string name : {"README.md",
                                 "configs/README.md",
                                 "configs/continue_pretraining.md",
                                 "data/README.md",
                                 "data/FORMAT.md",
                                 "data/text.md",
                                 "data/pipeline/exchange.md",
                                 "harness/README.md",
                                 "harness/cli/README.md",
                                 "harness/checkpoint/resume.md",
                                 "harness/comm/nodes.md",
                                 "harness/decisions.md",
                                 "harness/model/fp8.md",
                                 "harness/train/step.md",
                                 "kernels/README.md",
                                 "kernels/measured/attention.md",
                                 "kernels/measured/step.md",
                                 "launch/README.md",
                                 "launch/clusters.md",
                                 "launch/machines.md",
                                 "launch/profiles.md",
                                 "tests/README.md",
                                 "tests/attacks.md",
                                 "tests/by_hand.md"}) {
    const std::string text = bytes_of(std::string(kSourceDir) + "/" + name);
    EXPECT_FALSE(text.empty()) << name;
    for (const Words& words : examples_in(text)) {
      ++count;
      if (std::count(all.begin(), all.end(), words) > 0) continue;  // the command is only named
      if (std::ranges::count(tool_names(), words.front()) > 0) continue;  // harness/tools has it
      EXPECT_EQ(outcome(words).error, "") << name << ": bertha " << joined(words);
    }
  }
  EXPECT_GT(count, 40u);
}

}  // namespace
}  // namespace bertha
