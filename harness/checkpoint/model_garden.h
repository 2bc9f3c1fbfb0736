#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/checkpoint/name_map.h"

namespace bertha {

// Checkpoints of TensorFlow's model garden name a tensor by its path among Keras objects:
// "encoder/layer_with_weights-4/_attention_layer/_query_dense/kernel/.ATTRIBUTES/VARIABLE_VALUE".
// Parts are named by a number (layer_with_weights-N: 0 to 2 embeddings, 3 their LayerNorm, then the
// layers of the encoder, then the pooler) or an attribute (_transformer_layers/N, _pooler_layer).
// In the older pre-training model the encoder and its heads have numbers too, before the numbers
// of their layers.
//
// Source    github.com/tensorflow/models, official/nlp/modeling: networks/bert_encoder.py,
//           models/bert_pretrainer.py; golden checkpoints of both forms.

/// Whether a path has the form that only the model garden's encoders have.
bool is_model_garden_path(const std::string& path);

/// The name of the same tensor in the official code of BERT, "" if there is none:
/// "bert/encoder/layer_0/attention/self/query/kernel". The shape distinguishes the heads if both
/// are named by numbers.
std::string official_name_of(const std::string& path, const std::vector<int64_t>& shape);

/// The shape in the official code: the model garden's attention has a separate dimension for heads.
std::vector<int64_t> without_heads(const std::string& official_name, std::vector<int64_t> shape);

/// Whether a path is the encoder's pooler, which the model garden's pre-training does not train (it
/// trains the sentence head's).
bool is_pooler_of_encoder(const std::string& path);
bool is_pooler_of_head(const std::string& path);

/// Names of tensorflow_names(), with the sentence head as Keras stores it: [in, out].
std::vector<NamedRows> model_garden_names(const ParamTable& table, const Dims& dims);

}  // namespace bertha
