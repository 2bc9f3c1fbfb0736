#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/model/dims.h"
#include "harness/model/params.h"

namespace bertha {

/// The parts of the model that other writers may leave out, and the one that they may not.
enum class ModelPart : uint8_t { kEncoder, kPooler, kMaskedTokenHead, kSentenceHead };
/// "pooler", "masked-token head", ...
std::string name_of(ModelPart part);
/// The part that a parameter of ours belongs to.
ModelPart part_of(const std::string& param_name);

/// Where a foreign tensor lives in our flat buffer: rows of one of our tensors. Query, key and
/// value are three tensors there and one here; padding rows exist only here.
struct NamedRows {
  std::string foreign_name;            // "bert.encoder.layer.0.attention.self.query.weight"
  std::vector<int64_t> foreign_shape;  // row-major
  int64_t first_element = 0;           // in the flat buffer
  int64_t elements = 0;
  ModelPart part = ModelPart::kEncoder;
  bool transposed = false;  // theirs is [in, out], ours [out, in]
};

/// The tensors of Hugging Face's BertForPreTraining, in our order; the tied decoder is not among
/// them, its weight being the word table and its bias cls.predictions.bias.
std::vector<NamedRows> hugging_face_names(const ParamTable& table, const Dims& dims);

/// Rows of the vocabulary that pad it to a multiple of 8, in our order; none if nothing is padded.
/// They have a meaning if the softmax ran over them (model.padded_vocab_in_softmax): then our
/// checkpoints contain them next to Hugging Face's tensors, whose readers leave them out.
std::vector<NamedRows> padding_names(const ParamTable& table, const Dims& dims);
bool is_padding_name(const std::string& name);

/// The tensors of hugging_face_names() under the names of the official TensorFlow code.
std::vector<NamedRows> tensorflow_names(const ParamTable& table, const Dims& dims);

constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";

/// A Hugging Face name as today's BertForPreTraining has it: "bert." in front of what a bare
/// BertModel writes, and weight and bias of LayerNorm where older versions wrote gamma and beta.
std::string modern_hugging_face_name(const std::string& name);
/// Buffers that older versions of transformers saved; they carry nothing.
bool is_position_buffer(const std::string& name);
/// State of an optimizer and counters, which a new run does not take over.
bool is_optimizer_state_in_tensorflow(const std::string& name);

}  // namespace bertha
