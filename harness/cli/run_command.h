#pragma once

#include <string>
#include <vector>

namespace bertha {

/// The whole program, as main() calls it: parses, runs the command, turns every error into one
/// message on standard error ("bertha: error: ...") and an exit code of ExitCode. Over several
/// ranks all return the same code: an error that every rank throws is printed by rank 0, one that a
/// single rank throws is printed with its number and ends the others.
int run_bertha(const std::vector<std::string>& arguments);

}  // namespace bertha
