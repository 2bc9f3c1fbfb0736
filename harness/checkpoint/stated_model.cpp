#include "harness/checkpoint/stated_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/json_file.h"
#include "data/text_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kGoogleName = "bert_config.json";
constexpr const char* kHuggingFaceName = "config.json";

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  fail(ExitCode::kData, path, ": ", what);
}

std::string parse_gelu(const std::string& path, const std::string& activation) {
  const bool google = fs::path(path).filename() == kGoogleName;
  if (activation == "gelu") return google ? "tanh" : "erf";
  if (activation == "gelu_python") return "erf";
  for (const char* tanh_form : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}) {
    if (activation == tanh_form) return "tanh";
  }
  refuse(path, concat("hidden_act is ", activation,
                      ", want gelu or gelu_new; this program trains no other model."));
}

/// What our model lacks and a BertConfig can ask for.
void check_features(const std::string& path, const Json& json) {
  const std::string type = json.value("model_type", "bert");
  if (type != "bert") refuse(path, "states a model of type " + type + ", want bert.");
  const std::string positions = json.value("position_embedding_type", "absolute");
  if (positions != "absolute") {
    refuse(path, "position_embedding_type is " + positions + ", want absolute.");
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (json.value(key, false))
      refuse(path, concat(key, " is true; this program has encoders only."));
  }
}

}  // namespace

std::string hugging_face_config(const ModelConfig& config, ModelHeads heads) {
  const bool all = heads == ModelHeads::kAll;
  const Json json = {{"architectures", {all ? "BertForPreTraining" : "BertModel"}},
                     {"model_type", "bert"},
                     {"attention_probs_dropout_prob", config.attention_dropout},
                     {"hidden_act", config.gelu == "erf" ? "gelu" : "gelu_new"},
                     {"hidden_dropout_prob", config.hidden_dropout},
                     {"hidden_size", config.hidden},
                     {"initializer_range", config.init_stddev},
                     {"intermediate_size", config.feed_forward},
                     {"layer_norm_eps", config.layer_norm_epsilon},
                     {"max_position_embeddings", config.max_positions},
                     {"num_attention_heads", config.heads},
                     {"num_hidden_layers", config.layers},
                     {"pad_token_id", 0},
                     {"position_embedding_type", "absolute"},
                     {"tie_word_embeddings", true},
                     {"torch_dtype", "float32"},
                     {"type_vocab_size", config.segment_types},
                     {"vocab_size", config.vocab_size}};
  return json.dump(2) + "\n";
}

StatedModel read_stated_model(const std::string& path) {
  try {
    const Json json = parse_json(read_text_file(path));
    check_features(path, json);
    ModelConfig model{.name = fs::absolute(path).parent_path().filename().string(),
                      .layers = json.at("num_hidden_layers"),
                      .hidden = json.at("hidden_size"),
                      .heads = json.at("num_attention_heads"),
                      .feed_forward = json.at("intermediate_size"),
                      .vocab_size = json.at("vocab_size")};
    model.max_positions = json.value("max_position_embeddings", model.max_positions);
    model.segment_types = json.value("type_vocab_size", model.segment_types);
    model.hidden_dropout = json.value("hidden_dropout_prob", model.hidden_dropout);
    model.attention_dropout = json.value("attention_probs_dropout_prob", model.attention_dropout);
    model.init_stddev = json.value("initializer_range", model.init_stddev);
    model.layer_norm_epsilon = json.value("layer_norm_eps", model.layer_norm_epsilon);
    model.gelu = parse_gelu(path, json.value("hidden_act", "gelu"));
    return {.path = path, .model = model};
  } catch (const Json::exception& error) {
    refuse(path, concat("is no config.json of a BERT model (", error.what(), ")."));
  }
}

std::optional<StatedModel> find_stated_model(const WeightPlace& place) {
  for (const char* name : {kHuggingFaceName, kGoogleName}) {
    const fs::path path = fs::path(place.folder) / name;
    if (fs::exists(path)) return read_stated_model(path.string());
  }
  return std::nullopt;
}

std::vector<std::string> silent_differences(const StatedModel& stated, const ModelConfig& model) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    differences.push_back(
        concat("model.", key, " is ", ours, ", and ", stated.path, " states ", theirs));
  };
  compare("heads", model.heads, stated.model.heads);
  compare("gelu", model.gelu, stated.model.gelu);
  compare("layer_norm_epsilon", model.layer_norm_epsilon, stated.model.layer_norm_epsilon);
  return differences;
}

}  // namespace bertha
