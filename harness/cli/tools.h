#pragma once

#include <string>
#include <vector>

namespace bertha {

/// The commands of bertha-tools.
const std::vector<std::string>& tool_names();

/// Executes a command of bertha-tools (harness/tools, "watch", "plot", ...) with that program, from
/// PATH or from .venv here, and does not return then. Returns if the first argument is not one of
/// its commands.
///
/// Errors    Error(kEnvironment) if it is not installed, or under a launcher, whose ranks would
///           each run it; Error(kUsage) for retired commands, with what to use instead.
void hand_over_to_tools(const std::vector<std::string>& arguments);

}  // namespace bertha
