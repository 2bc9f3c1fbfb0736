#include "harness/cli/config_diff.h"

#include <algorithm>
#include <filesystem>

#include "harness/config/keys.h"
#include "harness/report/run_folder.h"

namespace bertha {

LoadedConfig config_of(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return load_config({path}, {});
  const std::string newest = newest_config(path);
  return load_config({newest.empty() ? path + "/resolved.yaml" : newest}, {});
}

TextTable differing_keys(const std::vector<LoadedConfig>& configs, bool origins) {
  TextTable rows;
  for (const Key& key : config_keys()) {
    const std::string first = value_text(key, configs.front().config);
    const bool same = std::ranges::all_of(
        configs, [&](const LoadedConfig& other) { return value_text(key, other.config) == first; });
    if (same) continue;
    rows.push_back({std::string(key.path)});
    for (const LoadedConfig& loaded : configs) {
      const std::string origin = "  # " + loaded.origins.at(std::string(key.path));
      rows.back().push_back(value_text(key, loaded.config) + (origins ? origin : ""));
    }
  }
  return rows;
}

}  // namespace bertha
