#include "harness/config/changed_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/config/keys.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Keys, and sections with their dot, that do not change what a model learns. The contents of the
/// shards are compared with those of the checkpoint elsewhere, whatever their path.
constexpr std::array<std::string_view, 29> kNotLearnedBy{
    "data.train",
    "data.eval",
    "data.vocab",
    "data.prefetch_steps",
    "data.verify_manifest",
    "train.accumulation_steps",
    "train.max_samples",
    "train.time_limit_minutes",
    "train.target_accuracy",
    "train.target_times_constant",
    "train.init_warmup_steps",
    "train.log_every_steps",
    "train.stop_after_skips",
    "train.check_replicas_every_steps",
    "train.hang_timeout_minutes",
    "train.backend",
    "train.threads_per_rank",
    "optimizer.bucket_mib",
    "optimizer.shard_group",
    "eval.",
    "checkpoint.resume",
    "checkpoint.every_steps",
    "checkpoint.keep",
    "checkpoint.keep_every_steps",
    "checkpoint.keep_best",
    "checkpoint.at_end",
    "log.",
    "cuda.",
    "mlperf.",
};

bool is_learned_by(std::string_view path) {
  return std::ranges::none_of(kNotLearnedBy, [&](std::string_view entry) {
    return entry.ends_with('.') ? path.starts_with(entry) : path == entry;
  });
}

}  // namespace

std::vector<std::string> changed_settings(const Config& was, const Config& is) {
  const bool own_schedule = was.optimizer.schedule_steps > 0 && is.optimizer.schedule_steps > 0;
  std::vector<std::string> changes;
  for (const Key& key : config_keys()) {
    if (!is_learned_by(key.path) || (own_schedule && key.path == "train.max_steps")) continue;
    const std::string old_value = value_text(key, was), new_value = value_text(key, is);
    if (old_value == new_value) continue;
    changes.push_back(concat(key.path, " ", old_value, " -> ", new_value));
  }
  return changes;
}

}  // namespace bertha
