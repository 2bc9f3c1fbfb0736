#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/weight_source.h"
#include "harness/config/config.h"

namespace bertha {

enum class ModelHeads : uint8_t { kAll, kNone };

/// config.json as Hugging Face's BertConfig reads it: of BertForPreTraining, or without heads of
/// BertModel.
std::string hugging_face_config(const ModelConfig& config, ModelHeads heads = ModelHeads::kAll);

/// What a file beside weights states of their model.
struct StatedModel {
  std::string path;
  ModelConfig model;
};

/// Reads config.json (Hugging Face) or bert_config.json (Google). "gelu" is the erf form in the
/// first and the tanh form in the second, whose code computes that one under this name.
///
/// Errors    Error(kData) naming the file: not readable, a field missing, or a model that this
///           program does not have (another activation, relative positions, a decoder, ...).
StatedModel read_stated_model(const std::string& path);
/// The one beside the weights; none when there is no such file.
std::optional<StatedModel> find_stated_model(const WeightPlace& place);

/// What differs from the configured model and shows in no shape: heads, GELU, epsilon. A part of a
/// sentence each, such as "model.heads = 2, and config.json states 4".
std::vector<std::string> silent_differences(const StatedModel& stated, const ModelConfig& model);

}  // namespace bertha
