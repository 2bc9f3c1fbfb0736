#include "tests/harness/cli/run_program.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

[[noreturn]] void become(const Words& words, const std::string& folder, const TempFolder& caught) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const bool ready = chdir(folder.c_str()) == 0 && freopen("/dev/null", "r", stdin) != nullptr &&
                     freopen(caught.path("out").c_str(), "w", stdout) != nullptr &&
                     freopen(caught.path("err").c_str(), "w", stderr) != nullptr;
  if (ready) execv(arguments.front(), arguments.data());
  _exit(127);
}

}  // namespace

Ran run_program(const Words& words, const std::string& folder) {
  const TempFolder caught;
  const pid_t child = fork();
  if (child == 0) become(words, folder, caught);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = bytes_of(caught.path("out")),
          .err = bytes_of(caught.path("err"))};
}

Ran run_bertha_program(const Words& words, const std::string& folder) {
  return run_program(with({BERTHA_PROGRAM}, words), folder);
}

Ran run_line_on_ranks(int ranks, const std::string& line, const std::string& folder) {
  const Words launcher{BERTHA_MPIEXEC, "--oversubscribe", "-np", std::to_string(ranks),
                       BERTHA_PROGRAM};
  return run_program(with(launcher, split(line)), folder);
}

}  // namespace bertha
