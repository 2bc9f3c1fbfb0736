#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/weight_source.h"
#include "harness/config/config.h"

namespace bertha {

enum class ModelHeads : uint8_t { kAll, kNone };

/// config.json as Hugging Face's BertConfig reads it: for BertForPreTraining, or without heads for
/// BertModel. `source` is the config.json of the weights that training started from, "" = none:
/// its other fields are kept, and its dropouts, which fine-tuning uses. `dtype`: of the weights.
std::string hugging_face_config(const ModelConfig& config, ModelHeads heads = ModelHeads::kAll,
                                const std::string& source = "", DType dtype = DType::kF32);
/// The text of the config.json next to weights, as transformers writes it; "" = none. The path need
/// not exist.
std::string source_config(const std::string& weights_path);

/// The model that a file next to weights states.
struct StatedModel {
  std::string path;
  ModelConfig model;
};

/// Reads config.json (Hugging Face) or bert_config.json (Google) of `weights`. The meaning of
/// "gelu" depends on the code that trained them: the erf form if transformers wrote the file,
/// whatever its name, and the tanh form in Google's files and next to TensorFlow's checkpoints.
///
/// Errors    Error(kData) naming the file and the field: not readable, a missing field, a size
///           outside the limits of its key, or a model that Bertha does not support (another
///           activation, relative positions, a decoder, ...).
StatedModel read_stated_model(const std::string& path, WeightFormat weights);
/// The stated model next to the weights; none if no such file exists.
std::optional<StatedModel> find_stated_model(const WeightPlace& place);
/// The same for a path as in locate_weights(), whose config.json is checked first, so that a model
/// of another kind is reported before its weights are searched.
std::optional<StatedModel> find_stated_model(const std::string& path);
/// The keys that such a file sets.
std::vector<std::string> stated_keys();

/// Differences from the configured model that no shape shows: heads, GELU, epsilon; each as a
/// clause such as "model.heads is 2, but config.json states 4".
std::vector<std::string> silent_differences(const StatedModel& stated, const ModelConfig& model);

}  // namespace bertha
