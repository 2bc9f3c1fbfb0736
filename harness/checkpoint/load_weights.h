#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/checkpoint/name_map.h"
#include "harness/config/config.h"
#include "harness/model/dims.h"
#include "harness/model/params.h"

namespace bertha {

struct WeightRequest {
  std::string path;  // as in locate_weights()
  MissingHeads missing_heads = MissingHeads::kRefuse;
  StatedDifferences differences = StatedDifferences::kRefuse;
  uint64_t seed = 0;                 // for fresh heads
  bool trains_sentence_head = true;  // else the caller sets a fresh one to zero
};
/// The request of checkpoint.init and related keys.
WeightRequest weight_request(const Config& config);

struct LoadedWeights {
  std::string path;                // the file, or TensorFlow's prefix
  std::vector<ModelPart> fresh;    // not in the file
  std::vector<std::string> notes;  // messages for the user about differences from the file
};

/// Weights only, into a flat f32 host buffer [table.elements]: from one of our checkpoints, from a
/// Hugging Face folder or safetensors file (BertForPreTraining, BertModel, or one with some of the
/// heads), or from a TensorFlow checkpoint with the official names or the model garden's. Assigns
/// every parameter exactly once. Padding rows of the vocabulary become zero, except that our
/// checkpoints provide them if the model includes them in its softmax. Optimizer state is not read;
/// other kinds of heads are not read either, but noted.
///
/// Errors    Error(kData): a list of all tensors that are missing, have another shape or are
///           unknown, with the names nearest to those; damage; numbers that are not finite;
///           missing heads and differences unless allowed; a decoder that is not tied to the word
///           table.
LoadedWeights load_weights(const WeightRequest& request, const ModelConfig& model,
                           const ParamTable& table, float* flat);

/// Error(kData) as above unless checkpoint.init, if set, has the tensors of the configured model;
/// values are not read.
void check_initial_weights(const Config& config);

/// Error(kData) as above unless the weights match the whole model; with MissingHeads::kFresh, the
/// pooler and each head may be missing as a whole. Values are not read.
void check_weight_tensors(const std::string& path, const ParamTable& table, const Dims& dims,
                          MissingHeads missing_heads);

}  // namespace bertha
