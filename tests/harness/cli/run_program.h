#pragma once

#include <string>

#include "tests/support/words.h"

namespace bertha {

struct Ran {
  int code = -1;  // 128 + signal when killed
  std::string out;
  std::string err;
};

/// Runs a program to its end with standard output and error caught; `words` starts with its path.
Ran run_program(const Words& words, const std::string& folder = ".");

/// `bertha WORDS`, the program of this build.
Ran run_bertha_program(const Words& words, const std::string& folder = ".");

/// `bertha LINE`.
inline Ran run_line(const std::string& line, const std::string& folder = ".") {
  return run_bertha_program(split(line), folder);
}

/// The same on several ranks through mpiexec; its own notices stay in `err`.
Ran run_line_on_ranks(int ranks, const std::string& line, const std::string& folder = ".");

}  // namespace bertha
