#include "harness/cli/missing_inputs.h"

#include <filesystem>

#include "data/format/shard_names.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/train/data_check.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct Input {
  const char* key;
  const std::string& path;
  const char* what_to_do;
  bool is_file = false;
};

std::string found_wrong(const Input& input) {
  if (!fs::exists(input.path)) {
    return concat(input.key, ": ", input.path, " does not exist; ", input.what_to_do);
  }
  if (input.is_file && fs::is_directory(input.path)) {
    return concat(input.key, ": ", input.path, " is a folder, want a file; ", input.what_to_do);
  }
  return "";
}

}  // namespace

MissingInputs missing_inputs(const Config& config) {
  const DataConfig& data = config.data;
  const Input inputs[] = {
      {"data.train", data.train, "make shards with `bertha data prepare` and name their folder"},
      {"data.eval", data.eval, "make shards with `bertha data prepare` and name their folder"},
      {"data.vocab", data.vocab,
       "make one with `bertha data vocab` or name the published vocab.txt", true},
  };
  MissingInputs found;
  std::vector<std::string>& missing = found.wrong;
  for (const Input& input : inputs) {
    if (data.synthetic) break;  // needs none of them
    if (input.path.empty()) {
      found.unset.push_back(concat(input.key, " is not set; ", input.what_to_do));
    } else if (const std::string wrong = found_wrong(input); !wrong.empty()) {
      missing.push_back(wrong);
    }
  }
  const auto look_into = [&missing](const char* key, const auto& look) {
    try {
      look();
    } catch (const Error& error) {
      missing.push_back(concat(key, ": ", error.what()));
    }
  };
  for (const Input& input : {inputs[0], inputs[1]}) {
    if (input.path.empty() || !fs::exists(input.path)) continue;
    look_into(input.key, [&] { list_shards(input.path); });
  }
  if (missing.empty() && found.unset.empty() && !data.synthetic) {
    look_into("data", [&] { check_data(config, 0, 1, false); });
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.init.empty()) {
    look_into("checkpoint.init", [&] { locate_weights(checkpoint.init); });
  }
  const bool named = checkpoint.resume != "auto" && checkpoint.resume != "never";
  if (named && !fs::exists(checkpoint.resume)) {
    missing.push_back(concat("checkpoint.resume: ", checkpoint.resume,
                             " does not exist; name a checkpoint, or write auto or never"));
  }
  return found;
}

}  // namespace bertha
