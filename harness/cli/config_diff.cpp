#include "harness/cli/config_diff.h"

#include <algorithm>
#include <filesystem>

#include "harness/config/keys.h"
#include "kernels/base/error.h"

namespace bertha {

namespace fs = std::filesystem;

LoadedConfig config_of(const std::string& path) {
  if (!fs::is_directory(path)) return load_config({path}, {});
  fs::path newest = fs::path(path) / "resolved.yaml";
  for (int64_t resume = 1;; ++resume) {
    const fs::path next = fs::path(path) / concat("resolved.resume", resume, ".yaml");
    if (!fs::exists(next)) break;
    newest = next;
  }
  return load_config({newest.string()}, {});
}

TextTable differing_keys(const std::vector<LoadedConfig>& configs, bool origins) {
  TextTable rows;
  for (const Key& key : config_keys()) {
    const std::string first = value_text(key, configs.front().config);
    const bool same = std::all_of(configs.begin(), configs.end(), [&](const LoadedConfig& other) {
      return value_text(key, other.config) == first;
    });
    if (same) continue;
    rows.push_back({std::string(key.path)});
    for (const LoadedConfig& loaded : configs) {
      const Origin& origin = loaded.origins.at(std::string(key.path));
      const bool is_default = origin.kind == Origin::Kind::kDefault;
      rows.back().push_back(value_text(key, loaded.config) +
                            (origins ? "  # " + (is_default ? "default" : origin.where) : ""));
    }
  }
  return rows;
}

}  // namespace bertha
