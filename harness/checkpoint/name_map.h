#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/model/dims.h"
#include "harness/model/params.h"

namespace bertha {

/// The parts of the model: the encoder, and those that other writers may leave out.
enum class ModelPart : uint8_t { kEncoder, kPooler, kMaskedTokenHead, kSentenceHead };
/// "pooler", "masked-token head", ...
std::string name_of(ModelPart part);
/// The part that one of our parameters belongs to.
ModelPart part_of(const std::string& param_name);

/// The place of a foreign tensor in our flat buffer: rows of one of our tensors. Query, key and
/// value are three tensors there and one here; padding rows exist only here.
struct NamedRows {
  std::string foreign_name;            // "bert.encoder.layer.0.attention.self.query.weight"
  std::vector<int64_t> foreign_shape;  // row-major
  int64_t first_element = 0;           // in the flat buffer
  int64_t elements = 0;
  ModelPart part = ModelPart::kEncoder;
  bool transposed = false;  // the foreign tensor is [in, out], ours [out, in]
};

/// The tensors of Hugging Face's BertForPreTraining, in our order, without the tied decoder, whose
/// weight is the word table and whose bias is cls.predictions.bias.
std::vector<NamedRows> hugging_face_names(const ParamTable& table, const Dims& dims);

/// Rows that pad the vocabulary to a multiple of 8, in our order; none if nothing is padded. They
/// matter if the softmax includes them (model.padded_vocab_in_softmax): then our checkpoints
/// contain them next to Hugging Face's tensors, whose readers ignore them.
std::vector<NamedRows> padding_names(const ParamTable& table, const Dims& dims);
bool is_padding_name(const std::string& name);

/// The tensors of hugging_face_names() with the names of the official TensorFlow code.
std::vector<NamedRows> tensorflow_names(const ParamTable& table, const Dims& dims);

constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";

/// The name in today's BertForPreTraining: with "bert." before the names of a bare BertModel, and
/// with LayerNorm's weight and bias instead of the gamma and beta of older versions.
std::string modern_hugging_face_name(const std::string& name);
/// Buffers that older versions of transformers saved; they contain no information.
bool is_position_buffer(const std::string& name);
/// State of an optimizer and counters, which a new run does not use.
bool is_optimizer_state_in_tensorflow(const std::string& name);

}  // namespace bertha
