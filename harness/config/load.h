#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

inline constexpr std::string_view kDefaultOrigin = "default";

struct LoadedConfig {
  Config config;
  /// Where the value of each key was set: "configs/quickstart.yaml:12:9", "--set train.seed=1" or
  /// kDefaultOrigin.
  std::map<std::string, std::string> origins;
};

/// One value from the command line.
struct Override {
  std::string assignment;  // "train.seed=1"
  std::string spelled;     // "--seed 1": its name in messages and origins
};

/// Whether retired keys cause a warning.
enum class KeyWarnings : uint8_t { kOn, kOff };

/// Loads the defaults, then the files in order, then the overrides; later values win.
/// A file may name others under `include:` (a path or a list, relative to itself); its own values
/// override theirs.
///
/// Errors    Error(kUsage) with every mistake of all files and overrides at once, one per line, as
///           file:line:column: key: what was found, what is wanted. Unknown and repeated keys are
///           mistakes, and so is a cycle of includes. If only values are wrong, the
///           contradictions() of all other keys follow.
LoadedConfig load_config(const std::vector<std::string>& files,
                         const std::vector<Override>& overrides,
                         KeyWarnings warnings = KeyWarnings::kOn);

/// Loads what to_yaml() wrote, on another rank or in an earlier start, without warnings about
/// retired keys. Errors as above, with `name` for the file.
Config config_from_yaml(const std::string& text, const std::string& name);

/// Every key with its value; loading it gives an equal Config.
std::string to_yaml(const Config& config);
/// The same with the origin of each value as a comment, and the unit.
std::string to_yaml_with_origins(const LoadedConfig& loaded);
/// The table of all keys for configs/README.md.
std::string key_table_markdown();

}  // namespace bertha
