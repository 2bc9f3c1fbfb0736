#pragma once

#include <string>
#include <vector>

namespace bertha {

/// The commands of bertha-tools.
const std::vector<std::string>& tool_names();

/// Hands a command of bertha-tools (harness/tools, "watch", "plot", ...) to that program, from PATH
/// or from .venv here, and does not return then. Returns where the first argument is none of its
/// commands.
///
/// Errors    Error(kEnvironment) where it is not installed, or under a launcher, whose ranks would
///           each run it; Error(kUsage) for commands of earlier versions, with what serves instead.
void hand_over_to_tools(const std::vector<std::string>& arguments);

}  // namespace bertha
