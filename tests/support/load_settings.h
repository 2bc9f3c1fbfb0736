#pragma once

#include <string>
#include <vector>

#include "harness/config/load.h"

namespace bertha::test {

/// The files, then `settings` ("train.seed=1") as given to --set.
inline LoadedConfig load_settings(const std::vector<std::string>& files,
                                  const std::vector<std::string>& settings = {}) {
  std::vector<Override> overrides;
  for (const std::string& setting : settings) overrides.push_back({setting, "--set " + setting});
  return load_config(files, overrides);
}

}  // namespace bertha::test
