#include "harness/cli/model_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/prepare/tokenizer_files.h"
#include "harness/checkpoint/name_map.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/config/keys.h"
#include "harness/plan/cost_plan.h"
#include "harness/train/precision.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokensPerStep = 16'384;
constexpr double kEpochs = 3;
constexpr double kWarmUpShare = 0.06;
constexpr int64_t kEvaluations = 10;

/// Sets keys that are not set yet.
class Defaults {
 public:
  Defaults(LoadedConfig& loaded, std::string origin)
      : loaded_(loaded), origin_(std::move(origin)) {}

  bool is_set(const std::string& path) const { return loaded_.origins.at(path) != kDefaultOrigin; }
  void set(const std::string& path, const std::string& value) {
    if (is_set(path)) return;
    const std::string wrong = assign(*find_key(path), value, loaded_.config);
    if (!wrong.empty()) fail(ExitCode::kData, origin_, ": ", path, ": ", wrong);
    loaded_.origins[path] = origin_;
  }
  template <class Number>
  void set_number(const std::string& path, Number value) {
    set(path, fmt::format("{}", value));
  }

 private:
  LoadedConfig& loaded_;
  std::string origin_;
};

/// The value of a key as in a file or option.
std::string plain_value(const Key& key, Config config) {
  const FieldRef field = key.field(config);
  if (const auto* const text = std::get_if<std::string*>(&field)) return **text;
  if (const auto* const choice = std::get_if<ChoiceRef>(&field)) return std::string(**choice);
  return value_text(key, config);
}

/// Whether a key determines the shape of a tensor. Dropouts and names may differ; load_weights()
/// decides what happens if heads, GELU or epsilon differ.
bool shapes_tensors(const std::string& path) {
  static const std::set<std::string_view> kShapes{"model.layers",        "model.hidden",
                                                  "model.feed_forward",  "model.vocab_size",
                                                  "model.max_positions", "model.segment_types"};
  return kShapes.contains(path);
}

void set_model_keys(LoadedConfig& loaded, bool adapts) {
  const std::string init = loaded.config.checkpoint.init;
  const std::optional<StatedModel> stated = find_stated_model(init);
  const std::string folder = locate_weights(init).folder;
  if (has_tokenizer_files(folder)) Defaults(loaded, folder).set("data.vocab", folder);
  if (!stated && adapts) {
    fail(ExitCode::kData, init,
         ": has no config.json, which states the model's shape; copy it from "
         "the source of the weights");
  }
  if (!stated) return;
  Config whole;
  whole.model = stated->model;
  Defaults defaults(loaded, stated->path);
  std::vector<std::string> different;
  for (const std::string& path : stated_keys()) {
    const Key& key = *find_key(path);
    const std::string value = plain_value(key, whole);
    const std::string found = plain_value(key, loaded.config);
    if (defaults.is_set(path) && found != value && shapes_tensors(path)) {
      different.push_back(
          fmt::format("{} is {} by {}, and {} there", path, found, loaded.origins.at(path), value));
    }
    defaults.set(path, value);
  }
  if (different.empty()) return;
  fail(ExitCode::kData, stated->path, ": its model has another shape: ", joined(different, "; "),
       "; remove these keys, or give weights of the configured shape.");
}

/// Lowers data.max_seq_tokens to the model's positions.
void fit_lengths(LoadedConfig& loaded) {
  const DataConfig& data = loaded.config.data;
  Defaults defaults(loaded, "model.max_positions");
  defaults.set_number("data.max_seq_tokens",
                      std::min(data.max_seq_tokens, loaded.config.model.max_positions));
  defaults.set_number("data.max_masked_per_seq",
                      std::min(data.max_masked_per_seq, data.max_seq_tokens));
}

/// Whether the samples are pairs of sentences, according to their manifest.
bool has_pairs(const Manifest& manifest) {
  const auto segments = manifest.options.find("segments");
  return segments == manifest.options.end() || segments->second != "one";
}

/// The power of two of sequences nearest to the tokens of a step; powers of two divide over the
/// ranks.
int64_t batch_of(const Manifest& manifest, int num_ranks) {
  double tokens = 0;
  const std::vector<int64_t>& seqs = manifest.token_length_histogram;
  for (size_t length = 0; length < seqs.size(); ++length) {
    tokens += static_cast<double>(length) * static_cast<double>(seqs[length]);
  }
  const auto samples = static_cast<double>(std::max<int64_t>(manifest.num_samples(), 1));
  const double mean_tokens = std::max(tokens / samples, 1.0);
  const double exact = static_cast<double>(kTokensPerStep) / mean_tokens;
  const int64_t batch = int64_t{1} << std::clamp(std::lround(std::log2(exact)), 3l, 10l);
  return round_up(batch, int64_t{num_ranks});
}

void set_adaptation_defaults(LoadedConfig& loaded, int num_ranks) {
  const Config& config = loaded.config;
  Defaults defaults(loaded, "--model");
  defaults.set("optimizer.name", std::string(word_of(OptimizerName::kAdamw)));
  if (config.optimizer.name == OptimizerName::kAdamw) {
    defaults.set_number("optimizer.base_learning_rate", kAdamwLearningRate);
  }
  if (!defaults.is_set("train.max_steps")) {
    defaults.set_number("train.max_epochs", kEpochs);
    if (config.train.max_epochs == 0) {
      fail(ExitCode::kUsage,
           "train.max_epochs is 0 and train.max_steps is not set, so the length of the run is "
           "unknown; set one of them (train.max_steps 0 evaluates only)");
    }
  }
  defaults.set("optimizer.schedule", std::string(word_of(Schedule::kLinear)));
  defaults.set("train.target_accuracy", "0");
  if (!config.data.synthetic) defaults.set("data.masking", "dynamic");
  defaults.set("log.run_name", config.model.name);
  const std::optional<Manifest> manifest =
      fs::exists(config.data.train) ? find_manifest(config.data.train) : std::nullopt;
  bool wants_next_sentence = has_next_sentence_head(config.checkpoint.init);
  if (manifest) {
    wants_next_sentence = wants_next_sentence && has_pairs(*manifest);
    defaults.set_number("data.max_seq_tokens", manifest->limits.max_seq_tokens);
    defaults.set_number("data.max_masked_per_seq", manifest->limits.max_masked_per_seq);
    defaults.set_number("train.global_batch_seqs", batch_of(*manifest, num_ranks));
  }
  defaults.set("train.nsp_weight", wants_next_sentence ? "1" : "0");
}

/// Splits a step that does not fit into memory at once. One that never fits is not changed: the
/// error when memory runs out explains it.
void fit_memory(LoadedConfig& loaded, int num_ranks, int64_t gpu_bytes) {
  constexpr double kUsable = 0.95;  // of a GPU, as the plan is an estimate
  const Config& config = loaded.config;
  const PlanRequest request{.config = config,
                            .ranks = num_ranks,
                            .io = planned_io(config.train, true),
                            .fp8 = has_fp8_gemms(config.train),
                            .on_gpu = true};
  const MemoryFit fit =
      fit_into(request, static_cast<int64_t>(kUsable * static_cast<double>(gpu_bytes)));
  if (fit.accumulation_steps == 0) return;
  Defaults defaults(loaded, "--model");
  defaults.set_number("train.accumulation_steps", fit.accumulation_steps);
  defaults.set_number("eval.batch_seqs",
                      std::min(config.eval.batch_seqs, fit.seqs_per_micro_batch));
}

/// Samples in one epoch, by the manifest or by the shards.
int64_t samples_of(const std::string& folder) {
  const std::optional<Manifest> manifest = find_manifest(folder);
  if (manifest && manifest->num_samples() > 0) return manifest->num_samples();
  int64_t samples = 0;
  for (const std::string& shard : list_shards(folder)) samples += inspect_shard(shard).num_samples;
  return samples;
}

void set_steps_of_epochs(LoadedConfig& loaded) {
  const DataConfig& data = loaded.config.data;
  TrainConfig& train = loaded.config.train;
  if (data.synthetic)
    fail(ExitCode::kUsage,
         "train.max_epochs needs data.train, but the data are synthetic; set train.max_steps");
  if (!fs::exists(data.train)) return;  // reported when the data are opened
  const auto seqs = static_cast<double>(samples_of(data.train));
  const auto steps = static_cast<int64_t>(
      std::ceil(train.max_epochs * seqs / static_cast<double>(train.global_batch_seqs)));
  Defaults(loaded, "train.max_epochs").set_number("train.max_steps", steps);
  train.max_steps = std::min(train.max_steps, steps);
}

}  // namespace

bool weights_exist(const std::string& weights) {
  return fs::exists(weights) || fs::exists(weights + ".index");
}

bool has_next_sentence_head(const std::string& weights) {
  const auto source = open_weights(locate_weights(weights));
  const auto is_set = [](float value) { return value != 0.0f; };
  return std::ranges::any_of(source->tensors(), [&](const auto& entry) {
    const std::string& name = entry.first;
    const bool is_in_head = name.find("seq_relationship") != std::string::npos ||
                            name.find("next_sentence") != std::string::npos;
    return is_in_head && std::ranges::any_of(source->read(name), is_set);
  });
}

void complete_from_files(LoadedConfig& loaded, bool adapts, int num_ranks, int64_t gpu_bytes) {
  const std::string init = loaded.config.checkpoint.init;
  const bool has_model = weights_exist(init) || (adapts && !init.empty());
  if (has_model) set_model_keys(loaded, adapts);
  if (adapts) set_adaptation_defaults(loaded, num_ranks);
  if (has_model) fit_lengths(loaded);
  if (adapts && gpu_bytes > 0) fit_memory(loaded, num_ranks, gpu_bytes);
  if (loaded.config.train.max_epochs > 0) set_steps_of_epochs(loaded);
  if (!adapts) return;
  const int64_t steps = loaded.config.train.max_steps;
  Defaults defaults(loaded, "--model");
  defaults.set_number("optimizer.warmup_steps",
                      std::lround(kWarmUpShare * static_cast<double>(steps)));
  const int64_t samples = steps * loaded.config.train.global_batch_seqs;
  defaults.set_number("eval.every_samples", std::max<int64_t>(samples / kEvaluations, 1));
}

}  // namespace bertha
