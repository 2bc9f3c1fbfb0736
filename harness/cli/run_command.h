#pragma once

#include <string>
#include <vector>

namespace bertha {

/// The whole program, as main() calls it: parses, runs the command, turns every error into one
/// message on standard error ("bertha: error: ...") and an exit code of ExitCode. With several
/// ranks all return the same code: rank 0 prints an error that every rank throws; a single rank
/// prints its own error with its number and ends the others.
int run_bertha(const std::vector<std::string>& arguments);

}  // namespace bertha
