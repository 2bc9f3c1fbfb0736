#include "harness/checkpoint/name_map.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace bertha {
namespace {

using NamePair = std::pair<const char*, const char*>;  // ours, theirs

constexpr std::array<NamePair, 5> kEmbeddingNames = {{
    {"embeddings.word.weight", "bert.embeddings.word_embeddings.weight"},
    {"embeddings.position.weight", "bert.embeddings.position_embeddings.weight"},
    {"embeddings.segment.weight", "bert.embeddings.token_type_embeddings.weight"},
    {"embeddings.layer_norm.gamma", "bert.embeddings.LayerNorm.weight"},
    {"embeddings.layer_norm.beta", "bert.embeddings.LayerNorm.bias"},
}};

constexpr std::array<NamePair, 10> kLayerNames = {{
    {"attention.output.weight", "attention.output.dense.weight"},
    {"attention.output.bias", "attention.output.dense.bias"},
    {"attention.layer_norm.gamma", "attention.output.LayerNorm.weight"},
    {"attention.layer_norm.beta", "attention.output.LayerNorm.bias"},
    {"feed_forward.in.weight", "intermediate.dense.weight"},
    {"feed_forward.in.bias", "intermediate.dense.bias"},
    {"feed_forward.out.weight", "output.dense.weight"},
    {"feed_forward.out.bias", "output.dense.bias"},
    {"feed_forward.layer_norm.gamma", "output.LayerNorm.weight"},
    {"feed_forward.layer_norm.beta", "output.LayerNorm.bias"},
}};

constexpr std::array<NamePair, 9> kHeadNames = {{
    {"pooler.weight", "bert.pooler.dense.weight"},
    {"pooler.bias", "bert.pooler.dense.bias"},
    {"mlm.transform.weight", "cls.predictions.transform.dense.weight"},
    {"mlm.transform.bias", "cls.predictions.transform.dense.bias"},
    {"mlm.layer_norm.gamma", "cls.predictions.transform.LayerNorm.weight"},
    {"mlm.layer_norm.beta", "cls.predictions.transform.LayerNorm.bias"},
    {"mlm.output.bias", "cls.predictions.bias"},
    {"nsp.weight", "cls.seq_relationship.weight"},
    {"nsp.bias", "cls.seq_relationship.bias"},
}};

constexpr std::array<NamePair, 2> kPaddingNames = {{
    {"embeddings.word.weight", "bertha.padding.word_embeddings.weight"},
    {"mlm.output.bias", "bertha.padding.predictions.bias"},
}};

/// Rows [first_row, first_row + rows) of one of our tensors, with a foreign name.
NamedRows rows_of(const ParamInfo& param, const std::string& foreign, int64_t first_row,
                  int64_t rows) {
  const int64_t row_elements = param.elements / param.shape[0];
  NamedRows named{.foreign_name = foreign,
                  .foreign_shape = param.shape,
                  .first_element = param.offset + first_row * row_elements,
                  .elements = rows * row_elements,
                  .part = part_of(param.name)};
  named.foreign_shape[0] = rows;
  return named;
}

void replace_end(std::string& text, std::string_view end, std::string_view by) {
  text.replace(text.size() - end.size(), end.size(), by);
}

/// Converts from the Hugging Face name and shape to TensorFlow's. Dense layers have [in, out]
/// kernels there, except the sentence head, whose weights are [out, in] as ours.
void rename_for_tensorflow(NamedRows& rows) {
  std::string& name = rows.foreign_name;
  if (name == "cls.predictions.bias") {
    name = "cls/predictions/output_bias";
    return;
  }
  if (name.starts_with("cls.seq_relationship.")) {
    name = name.ends_with("weight") ? "cls/seq_relationship/output_weights"
                                    : "cls/seq_relationship/output_bias";
    return;
  }
  const size_t layer = name.find(".layer.");
  if (layer != std::string::npos) name[layer + std::string_view(".layer").size()] = '_';
  std::ranges::replace(name, '.', '/');
  if (name.ends_with("_embeddings/weight")) {
    replace_end(name, "/weight", "");
  } else if (name.ends_with("/LayerNorm/weight")) {
    replace_end(name, "weight", "gamma");
  } else if (name.ends_with("/LayerNorm/bias")) {
    replace_end(name, "bias", "beta");
  } else if (name.ends_with("/weight")) {
    replace_end(name, "weight", "kernel");
    std::swap(rows.foreign_shape[0], rows.foreign_shape[1]);
    rows.transposed = true;
  }
}

}  // namespace

std::vector<NamedRows> hugging_face_names(const ParamTable& table, const Dims& dims) {
  std::vector<NamedRows> names;
  const auto add = [&](const std::string& ours, const std::string& theirs) {
    const ParamInfo& param = table.find(ours);
    // Rows beyond the entries of the vocabulary are our padding.
    const bool has_padding =
        param.shape[0] == dims.V && (ours == "embeddings.word.weight" || ours == "mlm.output.bias");
    names.push_back(rows_of(param, theirs, 0, has_padding ? dims.C : param.shape[0]));
  };

  for (const auto& [ours, theirs] : kEmbeddingNames) add(ours, theirs);
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    const std::string our_stem = concat("layer.", layer, ".");
    const std::string their_stem = concat("bert.encoder.layer.", layer, ".");
    int64_t first_row = 0;
    for (const char* part : {"query", "key", "value"}) {
      for (const char* kind : {"weight", "bias"}) {
        names.push_back(rows_of(table.find(our_stem + "attention.qkv." + kind),
                                concat(their_stem, "attention.self.", part, ".", kind), first_row,
                                dims.H));
      }
      first_row += dims.H;
    }
    for (const auto& [ours, theirs] : kLayerNames) add(our_stem + ours, their_stem + theirs);
  }
  for (const auto& [ours, theirs] : kHeadNames) add(ours, theirs);
  return names;
}

std::vector<NamedRows> padding_names(const ParamTable& table, const Dims& dims) {
  std::vector<NamedRows> names;
  if (dims.V == dims.C) return names;
  for (const auto& [ours, theirs] : kPaddingNames) {
    names.push_back(rows_of(table.find(ours), theirs, dims.C, dims.V - dims.C));
  }
  return names;
}

bool is_padding_name(const std::string& name) {
  return std::ranges::any_of(kPaddingNames,
                             [&](const NamePair& pair) { return name == pair.second; });
}

std::vector<NamedRows> tensorflow_names(const ParamTable& table, const Dims& dims) {
  std::vector<NamedRows> names = hugging_face_names(table, dims);
  for (NamedRows& rows : names) rename_for_tensorflow(rows);
  return names;
}

std::string name_of(ModelPart part) {
  // In the order of ModelPart.
  constexpr std::array kNames = {"encoder", "pooler", "masked-token head", "sentence head"};
  return kNames[static_cast<size_t>(part)];
}

ModelPart part_of(const std::string& param_name) {
  if (param_name.starts_with("pooler.")) return ModelPart::kPooler;
  if (param_name.starts_with("mlm.")) return ModelPart::kMaskedTokenHead;
  if (param_name.starts_with("nsp.")) return ModelPart::kSentenceHead;
  return ModelPart::kEncoder;
}

std::string modern_hugging_face_name(const std::string& name) {
  std::string modern = name;
  for (const auto& [old_end, new_end] : {NamePair{".LayerNorm.gamma", ".LayerNorm.weight"},
                                         NamePair{".LayerNorm.beta", ".LayerNorm.bias"}}) {
    if (modern.ends_with(old_end)) {
      modern.replace(modern.size() - std::string_view(old_end).size(), std::string::npos, new_end);
    }
  }
  for (const char* part : {"embeddings.", "encoder.", "pooler."}) {
    if (modern.starts_with(part)) return "bert." + modern;
  }
  return modern;
}

bool is_position_buffer(const std::string& name) {
  return name == "bert.embeddings.position_ids" || name == "embeddings.position_ids";
}

bool is_optimizer_state_in_tensorflow(const std::string& name) {
  // Parts of a path; the last ones come from tf.train.Checkpoint.
  constexpr std::array<std::string_view, 14> kStates = {"adam_m",
                                                        "adam_v",
                                                        "LAMB",
                                                        "LAMB_1",
                                                        "Adam",
                                                        "Adam_1",
                                                        "AdamWeightDecayOptimizer",
                                                        "AdamWeightDecayOptimizer_1",
                                                        "beta1_power",
                                                        "beta2_power",
                                                        "global_step",
                                                        ".OPTIMIZER_SLOT",
                                                        "save_counter",
                                                        "_CHECKPOINTABLE_OBJECT_GRAPH"};
  if (name.starts_with("optimizer/")) return true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    if (std::ranges::find(kStates, part) != kStates.end()) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace bertha
