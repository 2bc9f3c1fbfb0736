#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/harness/cli/run_program.h"

namespace bertha {
namespace {

using testing::IsEmpty;

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What bash's completion offers for the last of `words`; "(no blank)" is that of compopt.
Words completed_in_bash(const Words& words) {
  const Words command{"/bin/bash", "-c",
                      "eval \"$(\"$0\" completion bash)\"; compopt() { echo '(no blank)'; }; "
                      "COMP_WORDS=(\"$0\" \"$@\"); COMP_CWORD=$#; _bertha; "
                      "if ((${#COMPREPLY[@]})); then printf '%s\\n' \"${COMPREPLY[@]}\"; fi",
                      BERTHA_PROGRAM};
  const Ran ran = run_program(with(command, words));
  EXPECT_THAT(ran.err, IsEmpty());
  return lines_of(ran.out);
}

TEST(Completion, BashCompletesCommandsOptionsValuesAndKeys) {
  EXPECT_THAT(completed_in_bash({""}), testing::IsSupersetOf({"train", "data", "completion"}));
  EXPECT_EQ(completed_in_bash({"da"}), Words{"data"});
  EXPECT_EQ(completed_in_bash({"data", "ver"}), Words{"verify"});
  EXPECT_EQ(completed_in_bash({"-q", "train", "-q", "--max-st"}), Words{"--max-steps"});
  EXPECT_EQ(completed_in_bash({"train", "--backend", ""}), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(completed_in_bash({"train", "--backend", "=", "cu"}), Words{"cuda"});
  EXPECT_EQ(completed_in_bash({"train", "--resume", ""}), (Words{"auto", "never"}))
      << "and folders";
  EXPECT_EQ(completed_in_bash({"train", "--set", "train.se"}),
            (Words{"(no blank)", "train.seed="}));
  EXPECT_EQ(completed_in_bash({"completion", "z"}), Words{"zsh"});
  // Files are what the shell itself offers.
  EXPECT_THAT(completed_in_bash({"train", "--config", ""}), IsEmpty());
  EXPECT_THAT(completed_in_bash({"data", "verify", ""}), IsEmpty());
}

TEST(Completion, AnUnknownShellIsAMistake) {
  const Ran ran = run_line("completion tcsh");
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.err, "bertha: error: completion: found \"tcsh\", want bash|zsh|fish\n");
}

TEST(Man, HasASectionForEveryCommandThatRoffPrintsAsItIs) {
  const Words lines = lines_of(run_line("man").out);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(), testing::MatchesRegex("\\.TH BERTHA 1 \"\" \"bertha [0-9.]+\""));
  for (const std::string name : {"train", "data", "data dump\\-batches", "man"}) {
    EXPECT_THAT(lines, testing::Contains(".SH \"bertha " + name + "\""));
  }
  EXPECT_THAT(lines, testing::Contains("Usage: bertha data verify [OPTIONS] PATH"));
  for (const std::string& line : lines) {
    const bool is_macro =
        line.starts_with(".TH ") || line.starts_with(".SH ") || line == ".nf" || line == ".fi";
    EXPECT_TRUE(is_macro || !line.starts_with(".")) << line;
    EXPECT_FALSE(line.starts_with("'")) << line;
    for (size_t at = line.find('-'); at != std::string::npos; at = line.find('-', at + 1)) {
      EXPECT_TRUE(at > 0 && line[at - 1] == '\\') << line;
    }
  }
}

}  // namespace
}  // namespace bertha
