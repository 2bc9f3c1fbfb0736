#include "harness/checkpoint/stated_model.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <variant>

#include "data/files/json_file.h"
#include "data/files/text_file.h"
#include "harness/config/keys.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::array kNames = {"config.json", "bert_config.json"};

/// The fields of sizes and numbers with their keys.
struct Field {
  const char* name;
  const char* key;
  bool required = false;  // optional fields have the same defaults as ours
};
constexpr std::array<Field, 11> kFields = {{
    {"num_hidden_layers", "model.layers", true},
    {"hidden_size", "model.hidden", true},
    {"num_attention_heads", "model.heads", true},
    {"intermediate_size", "model.feed_forward", true},
    {"vocab_size", "model.vocab_size", true},
    {"max_position_embeddings", "model.max_positions"},
    {"type_vocab_size", "model.segment_types"},
    {"hidden_dropout_prob", "model.hidden_dropout"},
    {"attention_probs_dropout_prob", "model.attention_dropout"},
    {"initializer_range", "model.init_stddev"},
    {"layer_norm_eps", "model.layer_norm_epsilon"},
}};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  fail(ExitCode::kData, path, ": ", what);
}

/// transformers writes at least one of these into every config.json; Google's code writes none.
bool is_of_transformers(const Json& json) {
  return json.contains("model_type") || json.contains("architectures") ||
         json.contains("transformers_version");
}

GeluForm parse_gelu(const std::string& path, const Json& json, WeightFormat weights) {
  const std::string activation = json.value("hidden_act", "gelu");
  if (activation == "gelu") {
    const bool is_exact = weights == WeightFormat::kHuggingFace && is_of_transformers(json);
    return is_exact ? GeluForm::kErf : GeluForm::kTanh;
  }
  if (activation == "gelu_python") return GeluForm::kErf;
  for (const char* tanh_form : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}) {
    if (activation == tanh_form) return GeluForm::kTanh;
  }
  refuse(path, concat("hidden_act is ", activation,
                      ", want gelu or gelu_new; choose a model with one of them."));
}

/// The folder's name; for a checkpoint of Bertha, the name of its run.
std::string model_name(const fs::path& folder) {
  const bool is_checkpoint = fs::exists(folder / "state.json");
  return (is_checkpoint ? folder.parent_path().parent_path() : folder).filename().string();
}

/// Refuses options of a BertConfig that our model lacks.
void check_features(const std::string& path, const Json& json) {
  const std::string type = json.value("model_type", "bert");
  if (type != "bert")
    refuse(path, "states a model of type " + type + ", want bert; choose a BERT.");
  const std::string positions = json.value("position_embedding_type", "absolute");
  if (positions != "absolute") {
    refuse(path, "position_embedding_type is " + positions + ", want absolute.");
  }
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (json.value(key, false))
      refuse(path, concat(key, " is true, want false; choose an encoder."));
  }
}

/// Refuses sizes that training refuses, before memory of a stated size is allocated.
void check_fields(const std::string& path, const Json& json) {
  for (const Field& field : kFields) {
    if (!json.contains(field.name)) continue;
    const Key& key = *find_key(field.key);
    const Json& value = json.at(field.name);
    const bool whole = type_name(key) == "integer";
    if (whole ? !value.is_number_integer() : !value.is_number()) {
      refuse(path, concat(field.name, " is ", value.dump(), ", want ",
                          whole ? "a whole number." : "a number."));
    }
    const bool by_8 = key.path == "model.hidden" || key.path == "model.feed_forward";
    const bool fits = !by_8 || value.get<int64_t>() % 8 == 0;
    if (fits && key.range.holds(value.get<double>())) continue;
    refuse(path, concat(field.name, " is ", value.dump(), ", want ", allowed_values(key),
                        by_8 ? ", a multiple of 8" : "",
                        "; correct it, or give the file that belongs to these weights."));
  }
  const auto hidden = json.at("hidden_size").get<int64_t>();  // missing ones are named
  const auto heads = json.at("num_attention_heads").get<int64_t>();
  if (hidden % heads != 0) {
    refuse(path, concat("num_attention_heads is ", heads, ", which does not divide hidden_size ",
                        hidden, "; correct it."));
  }
}

}  // namespace

std::string hugging_face_config(const ModelConfig& config, ModelHeads heads,
                                const std::string& source, DType dtype) {
  const bool all = heads == ModelHeads::kAll;
  Json json = source.empty() ? Json::object() : parse_json(source);
  const bool keeps_activation =
      is_of_transformers(json) && parse_gelu("", json, WeightFormat::kHuggingFace) == config.gelu;
  if (!keeps_activation) json["hidden_act"] = config.gelu == GeluForm::kErf ? "gelu" : "gelu_new";
  if (!json.contains("pad_token_id")) json["pad_token_id"] = 0;
  json.update({{"architectures", {all ? "BertForPreTraining" : "BertModel"}},
               {"model_type", "bert"},
               {"position_embedding_type", "absolute"},
               {"tie_word_embeddings", true},
               {"torch_dtype", dtype == DType::kBF16  ? "bfloat16"
                               : dtype == DType::kF16 ? "float16"
                                                      : "float32"}});
  if (json.contains("dtype")) json["dtype"] = json["torch_dtype"];
  Config whole;
  whole.model = config;
  for (const Field& field : kFields) {
    const bool is_dropout = std::string_view(field.name).ends_with("_prob");
    if (is_dropout && json.contains(field.name)) continue;
    std::visit([&](const auto& value) { json[field.name] = *value; },
               find_key(field.key)->field(whole));
  }
  return json.dump(2) + "\n";
}

std::string source_config(const std::string& weights_path) {
  try {
    if (weights_path.empty()) return "";
    const fs::path path = fs::path(locate_weights(weights_path).folder) / kNames[0];
    if (!fs::exists(path)) return "";
    std::string text = read_text_file(path.string());
    return is_of_transformers(parse_json(text)) ? text : "";
  } catch (const std::exception&) {
    return "";  // it was read when training started and is no longer needed
  }
}

StatedModel read_stated_model(const std::string& path, WeightFormat weights) {
  try {
    const Json json = parse_json(read_text_file(path));
    check_features(path, json);
    check_fields(path, json);
    Config config;
    for (const Field& field : kFields) {
      if (!field.required && !json.contains(field.name)) continue;
      std::visit(
          [&](const auto& value) {
            if constexpr (requires { json.get_to(*value); }) json.at(field.name).get_to(*value);
          },
          find_key(field.key)->field(config));
    }
    ModelConfig& model = config.model;
    model.name = model_name(fs::absolute(path).lexically_normal().parent_path());
    model.gelu = parse_gelu(path, json, weights);
    return {.path = path, .model = model};
  } catch (const Json::exception& error) {
    refuse(path, concat("is not a config.json of a BERT model (", error.what(), ")."));
  }
}

std::optional<StatedModel> find_stated_model(const WeightPlace& place) {
  for (const char* name : kNames) {
    const fs::path path = fs::path(place.folder) / name;
    if (fs::exists(path)) return read_stated_model(path.string(), place.format);
  }
  return std::nullopt;
}

std::optional<StatedModel> find_stated_model(const std::string& path) {
  const fs::path candidate = fs::path(path) / kNames[0];
  if (fs::exists(candidate)) {
    const std::string name = candidate.string();
    try {
      check_features(name, parse_json(read_text_file(name)));
    } catch (const Json::exception& error) {
      refuse(name, concat("is not a config.json of a BERT model (", error.what(), ")."));
    }
  }
  return find_stated_model(locate_weights(path));
}

std::vector<std::string> stated_keys() {
  std::vector<std::string> keys{"model.name", "model.gelu"};
  for (const Field& field : kFields) keys.emplace_back(field.key);
  return keys;
}

std::vector<std::string> silent_differences(const StatedModel& stated, const ModelConfig& model) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    differences.push_back(
        concat("model.", key, " is ", ours, ", but ", stated.path, " states ", theirs));
  };
  compare("heads", model.heads, stated.model.heads);
  compare("gelu", word_of(model.gelu), word_of(stated.model.gelu));
  compare("layer_norm_epsilon", model.layer_norm_epsilon, stated.model.layer_norm_epsilon);
  return differences;
}

}  // namespace bertha
