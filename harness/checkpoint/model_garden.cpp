#include "harness/checkpoint/model_garden.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace bertha {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;  // theirs, official

constexpr std::string_view kEnd = "/.ATTRIBUTES/VARIABLE_VALUE";
constexpr std::string_view kNumbered = "layer_with_weights-";
constexpr std::string_view kListed = "_transformer_layers/";
constexpr std::string_view kMaskedToken = "masked_lm/";

// Where the parts of a model hang, the longest first.
constexpr std::array<std::string_view, 4> kRoots = {"model/encoder_network/", "model/encoder/",
                                                    "encoder/", "model/"};

constexpr std::array<NamePair, 7> kEncoderParts = {{
    {"_embedding_layer/embeddings", "bert/embeddings/word_embeddings"},
    {"_position_embedding_layer/embeddings", "bert/embeddings/position_embeddings"},
    {"_type_embedding_layer/embeddings", "bert/embeddings/token_type_embeddings"},
    {"_embedding_norm_layer/gamma", "bert/embeddings/LayerNorm/gamma"},
    {"_embedding_norm_layer/beta", "bert/embeddings/LayerNorm/beta"},
    {"_pooler_layer/kernel", "bert/pooler/dense/kernel"},
    {"_pooler_layer/bias", "bert/pooler/dense/bias"},
}};

/// By number, but for the layers and the pooler behind them.
constexpr std::array<NamePair, 5> kNumberedParts = {{
    {"0/embeddings", "bert/embeddings/word_embeddings"},
    {"1/embeddings", "bert/embeddings/position_embeddings"},
    {"2/embeddings", "bert/embeddings/token_type_embeddings"},
    {"3/gamma", "bert/embeddings/LayerNorm/gamma"},
    {"3/beta", "bert/embeddings/LayerNorm/beta"},
}};
constexpr int kFirstNumberedLayer = 4;

/// Of a layer; older versions have the projection of attention beside it and not in it.
constexpr std::array<NamePair, 18> kLayerParts = {{
    {"_attention_layer/_query_dense/kernel", "attention/self/query/kernel"},
    {"_attention_layer/_query_dense/bias", "attention/self/query/bias"},
    {"_attention_layer/_key_dense/kernel", "attention/self/key/kernel"},
    {"_attention_layer/_key_dense/bias", "attention/self/key/bias"},
    {"_attention_layer/_value_dense/kernel", "attention/self/value/kernel"},
    {"_attention_layer/_value_dense/bias", "attention/self/value/bias"},
    {"_attention_layer/_output_dense/kernel", "attention/output/dense/kernel"},
    {"_attention_layer/_output_dense/bias", "attention/output/dense/bias"},
    {"_attention_output_dense/kernel", "attention/output/dense/kernel"},
    {"_attention_output_dense/bias", "attention/output/dense/bias"},
    {"_attention_layer_norm/gamma", "attention/output/LayerNorm/gamma"},
    {"_attention_layer_norm/beta", "attention/output/LayerNorm/beta"},
    {"_intermediate_dense/kernel", "intermediate/dense/kernel"},
    {"_intermediate_dense/bias", "intermediate/dense/bias"},
    {"_output_dense/kernel", "output/dense/kernel"},
    {"_output_dense/bias", "output/dense/bias"},
    {"_output_layer_norm/gamma", "output/LayerNorm/gamma"},
    {"_output_layer_norm/beta", "output/LayerNorm/beta"},
}};

/// Of the masked-token head; the table of words is its own where it shares it with the encoder.
constexpr std::array<NamePair, 6> kMaskedTokenParts = {{
    {"embedding_table", "bert/embeddings/word_embeddings"},
    {"dense/kernel", "cls/predictions/transform/dense/kernel"},
    {"dense/bias", "cls/predictions/transform/dense/bias"},
    {"layer_norm/gamma", "cls/predictions/transform/LayerNorm/gamma"},
    {"layer_norm/beta", "cls/predictions/transform/LayerNorm/beta"},
    {"output_bias.Sbias", "cls/predictions/output_bias"},
}};

/// What a task saves of the sentence head, and a whole model.
constexpr std::array<NamePair, 6> kSentenceParts = {{
    {"next_sentence..pooler_dense/kernel", "bert/pooler/dense/kernel"},
    {"next_sentence..pooler_dense/bias", "bert/pooler/dense/bias"},
    {"classification_heads/0/dense/kernel", "bert/pooler/dense/kernel"},
    {"classification_heads/0/dense/bias", "bert/pooler/dense/bias"},
    {"classification_heads/0/out_proj/kernel", "cls/seq_relationship/output_weights"},
    {"classification_heads/0/out_proj/bias", "cls/seq_relationship/output_bias"},
}};

template <size_t kCount>
std::string official_part(const std::array<NamePair, kCount>& parts, std::string_view theirs) {
  for (const auto& [name, official] : parts) {
    if (name == theirs) return std::string(official);
  }
  return "";
}

std::string_view without_front(std::string_view text, std::string_view front) {
  return text.starts_with(front) ? text.substr(front.size()) : text;
}

/// Takes "12/" from the front of `rest`.
std::optional<int> take_number(std::string_view& rest) {
  int number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '/') return std::nullopt;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
  return number;
}

std::string official_layer_part(int layer, std::string_view theirs) {
  const std::string part = official_part(kLayerParts, theirs);
  return part.empty() ? "" : concat("bert/encoder/layer_", layer, "/", part);
}

std::string official_numbered_part(int number, std::string_view theirs) {
  if (number < kFirstNumberedLayer) {
    return official_part(kNumberedParts, concat(number, "/", theirs));
  }
  if (theirs == "kernel" || theirs == "bias") return concat("bert/pooler/dense/", theirs);
  return official_layer_part(number - kFirstNumberedLayer, theirs);
}

/// Of a head whose layers go by numbers; both begin with a dense layer.
std::string official_head_part(int layer, std::string_view theirs,
                               const std::vector<int64_t>& shape) {
  constexpr int64_t kClasses = 2;
  const bool two_classes = !shape.empty() && shape.back() == kClasses;
  if (layer == 0 && two_classes && theirs == "kernel") return "cls/seq_relationship/output_weights";
  if (layer == 0 && two_classes && theirs == "bias") return "cls/seq_relationship/output_bias";
  if (layer == 0) return official_part(kMaskedTokenParts, concat("dense/", theirs));
  if (layer == 1) return official_part(kMaskedTokenParts, concat("layer_norm/", theirs));
  return layer == 2 && theirs == "bias" ? "cls/predictions/output_bias" : "";
}

/// `rest`: the path behind a root.
std::string official_rest(std::string_view rest, const std::vector<int64_t>& shape) {
  if (rest.starts_with(kListed)) {
    rest.remove_prefix(kListed.size());
    const std::optional<int> layer = take_number(rest);
    return layer ? official_layer_part(*layer, rest) : "";
  }
  std::vector<int> numbers;
  while (rest.starts_with(kNumbered)) {
    rest.remove_prefix(kNumbered.size());
    const std::optional<int> number = take_number(rest);
    if (!number) return "";
    numbers.push_back(*number);
  }
  if (numbers.empty()) return official_part(kEncoderParts, rest);
  std::string masked_token = official_part(kMaskedTokenParts, rest);
  if (!masked_token.empty()) return masked_token;
  const int layer = numbers.back();
  numbers.pop_back();
  while (!numbers.empty() && numbers.front() == 0) numbers.erase(numbers.begin());
  if (numbers.empty()) return official_numbered_part(layer, rest);
  return numbers.size() == 1 ? official_head_part(layer, rest, shape) : "";
}

std::string_view without_end(std::string_view path) {
  if (path.ends_with(kEnd)) path.remove_suffix(kEnd.size());
  return path;
}

}  // namespace

bool is_model_garden_path(const std::string& path) {
  return path.ends_with(kEnd) &&
         (path.find(kNumbered) != std::string::npos || path.find(kListed) != std::string::npos);
}

std::string official_name_of(const std::string& path, const std::vector<int64_t>& shape) {
  if (!path.ends_with(kEnd)) return "";
  const std::string_view whole = without_end(path);
  const std::string_view task = without_front(whole, "model/");
  std::string sentence = official_part(kSentenceParts, task);
  if (!sentence.empty()) return sentence;
  if (task.starts_with(kMaskedToken)) {
    return official_part(kMaskedTokenParts, task.substr(kMaskedToken.size()));
  }
  for (const std::string_view root : kRoots) {
    if (whole.starts_with(root)) return official_rest(whole.substr(root.size()), shape);
  }
  return official_rest(whole, shape);
}

std::vector<int64_t> without_heads(const std::string& official_name, std::vector<int64_t> shape) {
  const auto join = [&](size_t first) {
    shape[first] *= shape[first + 1];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  };
  const bool is_projection = official_name.ends_with("/attention/output/dense/kernel");
  const bool is_self = official_name.find("/attention/self/") != std::string::npos;
  if (shape.size() == 3 && is_projection) join(0);                                // [A, D, H]
  if (shape.size() == 3 && is_self) join(1);                                      // [H, A, D]
  if (shape.size() == 2 && is_self && official_name.ends_with("/bias")) join(0);  // [A, D]
  return shape;
}

bool is_pooler_of_encoder(const std::string& path) {
  return official_name_of(path, {}).starts_with("bert/pooler/") && !is_pooler_of_head(path);
}

bool is_pooler_of_head(const std::string& path) {
  const std::string_view task = without_front(without_end(path), "model/");
  return official_part(kSentenceParts, task).starts_with("bert/pooler/");
}

std::vector<NamedRows> model_garden_names(const ParamTable& table, const Dims& dims) {
  std::vector<NamedRows> names = tensorflow_names(table, dims);
  for (NamedRows& rows : names) {
    if (rows.foreign_name != "cls/seq_relationship/output_weights") continue;
    std::swap(rows.foreign_shape[0], rows.foreign_shape[1]);
    rows.transposed = true;
  }
  return names;
}

}  // namespace bertha
