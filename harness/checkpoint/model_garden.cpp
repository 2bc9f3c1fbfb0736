#include "harness/checkpoint/model_garden.h"

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/base/parse_number.h"

namespace bertha {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;  // theirs, official

constexpr std::string_view kEnd = "/.ATTRIBUTES/VARIABLE_VALUE";
constexpr std::string_view kNumbered = "layer_with_weights-";
constexpr std::string_view kListed = "_transformer_layers/";
constexpr std::string_view kMaskedToken = "masked_lm/";

// Roots of the parts of a model, the longest first.
constexpr std::array<std::string_view, 4> kRoots = {"model/encoder_network/", "model/encoder/",
                                                    "encoder/", "model/"};

// A name that ends with a slash stands for the tensors of a layer, whose last part is the same in
// both: kernel and bias, gamma and beta.
constexpr NamePair kEncoderParts[] = {
    {"_embedding_layer/embeddings", "bert/embeddings/word_embeddings"},
    {"_position_embedding_layer/embeddings", "bert/embeddings/position_embeddings"},
    {"_type_embedding_layer/embeddings", "bert/embeddings/token_type_embeddings"},
    {"_embedding_norm_layer/", "bert/embeddings/LayerNorm/"},
    {"_pooler_layer/", "bert/pooler/dense/"},
};

/// Parts named by number, except the layers and the pooler after them.
constexpr NamePair kNumberedParts[] = {
    {"0/embeddings", "bert/embeddings/word_embeddings"},
    {"1/embeddings", "bert/embeddings/position_embeddings"},
    {"2/embeddings", "bert/embeddings/token_type_embeddings"},
    {"3/", "bert/embeddings/LayerNorm/"},
};
constexpr int kFirstNumberedLayer = 4;

/// Parts of a layer; in older versions the projection is next to attention, not inside it.
constexpr NamePair kLayerParts[] = {
    {"_attention_layer/_query_dense/", "attention/self/query/"},
    {"_attention_layer/_key_dense/", "attention/self/key/"},
    {"_attention_layer/_value_dense/", "attention/self/value/"},
    {"_attention_layer/_output_dense/", "attention/output/dense/"},
    {"_attention_output_dense/", "attention/output/dense/"},
    {"_attention_layer_norm/", "attention/output/LayerNorm/"},
    {"_intermediate_dense/", "intermediate/dense/"},
    {"_output_dense/", "output/dense/"},
    {"_output_layer_norm/", "output/LayerNorm/"},
};

/// Parts of the masked-token head, which lists the word table if it shares it with the encoder.
constexpr NamePair kMaskedTokenParts[] = {
    {"embedding_table", "bert/embeddings/word_embeddings"},
    {"dense/", "cls/predictions/transform/dense/"},
    {"layer_norm/", "cls/predictions/transform/LayerNorm/"},
    {"output_bias.Sbias", "cls/predictions/output_bias"},
};

/// The sentence head as saved by a task, and by a whole model.
constexpr NamePair kSentenceParts[] = {
    {"next_sentence..pooler_dense/", "bert/pooler/dense/"},
    {"classification_heads/0/dense/", "bert/pooler/dense/"},
    {"classification_heads/0/out_proj/kernel", "cls/seq_relationship/output_weights"},
    {"classification_heads/0/out_proj/bias", "cls/seq_relationship/output_bias"},
};

bool is_of_layer(std::string_view official, std::string_view tensor) {
  const bool is_norm = official.ends_with("LayerNorm/");
  return is_norm ? tensor == "gamma" || tensor == "beta" : tensor == "kernel" || tensor == "bias";
}

std::string official_part(std::span<const NamePair> parts, std::string_view theirs) {
  const size_t layer_end = theirs.rfind('/') + 1;
  const std::string_view layer = theirs.substr(0, layer_end), tensor = theirs.substr(layer_end);
  for (const auto& [name, official] : parts) {
    if (name == theirs) return std::string(official);
    if (name == layer && is_of_layer(official, tensor)) return concat(official, tensor);
  }
  return "";
}

std::string_view without_front(std::string_view text, std::string_view front) {
  return text.starts_with(front) ? text.substr(front.size()) : text;
}

/// Removes "12/" from the start of `rest`.
std::optional<int> next_number(std::string_view& rest) {
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<int> number = parse_number<int>(rest.substr(0, slash));
  rest.remove_prefix(slash + 1);
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

/// The official name of a part of a head with numbered layers; both heads begin with a dense layer.
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

/// `rest`: the path after a root.
std::string official_rest(std::string_view rest, const std::vector<int64_t>& shape) {
  if (rest.starts_with(kListed)) {
    rest.remove_prefix(kListed.size());
    const std::optional<int> layer = next_number(rest);
    return layer ? official_layer_part(*layer, rest) : "";
  }
  std::vector<int> numbers;
  while (rest.starts_with(kNumbered)) {
    rest.remove_prefix(kNumbered.size());
    const std::optional<int> number = next_number(rest);
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
