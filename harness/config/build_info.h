#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// The version, commit and libraries of this program.
struct BuildInfo {
  std::string version;   // "1.0.0"
  std::string git_hash;  // "75be650", with "+" if the tree had changes; "unknown" without git
  std::string backends;  // "cpu" or "cpu, cuda"
  std::string compiler;
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
};
BuildInfo build_info();
/// Several lines, as --version prints it.
std::string version_text();

/// The commit alone.
const char* git_hash();

}  // namespace bertha
