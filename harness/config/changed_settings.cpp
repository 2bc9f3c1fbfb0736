#include "harness/config/changed_settings.h"

#include "harness/config/keys.h"
#include "kernels/base/error.h"

namespace bertha {
std::vector<std::string> changed_settings(const Config& was, const Config& is) {
  const bool own_schedule = was.optimizer.schedule_steps > 0 && is.optimizer.schedule_steps > 0;
  std::vector<std::string> changes;
  for (const Key& key : config_keys()) {
    if (!key.is_learned || (own_schedule && key.path == "train.max_steps")) continue;
    const std::string old_value = value_text(key, was), new_value = value_text(key, is);
    if (old_value == new_value) continue;
    changes.push_back(concat(key.path, " ", old_value, " -> ", new_value));
  }
  return changes;
}

}  // namespace bertha
