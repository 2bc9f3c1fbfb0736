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
  uint64_t seed = 0;                 // of fresh heads
  bool trains_sentence_head = true;  // else the caller sets a fresh one to zero
};
/// What checkpoint.init and its companions ask for.
WeightRequest weight_request(const Config& config);

struct LoadedWeights {
  std::string path;                // the file, or TensorFlow's prefix
  std::vector<ModelPart> fresh;    // not in the file
  std::vector<std::string> notes;  // sentences for the user: what is not as it was there
};

/// Weights only, into a flat f32 host buffer [table.elements]: from one of our checkpoints, from a
/// Hugging Face folder or safetensors file (BertForPreTraining, BertModel, or one with a part of
/// the heads), or from a TensorFlow checkpoint under the official names or the model garden's.
/// Every parameter is assigned exactly once; padding rows of the vocabulary become zero, except
/// that our checkpoints provide them if the model has them in its softmax; optimizer state is not
/// read, and neither are heads of other kinds, which become a note.
///
/// Errors    Error(kData), one for all tensors that are missing, have another shape or belong
///           nowhere, with the names nearest to those; damage; numbers that are not finite;
///           missing heads and differences unless allowed; a decoder that is not tied to the word
///           table.
LoadedWeights load_weights(const WeightRequest& request, const ModelConfig& model,
                           const ParamTable& table, float* flat);

/// Error(kData) as above unless checkpoint.init, if set, has the tensors of the configured model;
/// values are not read.
void check_initial_weights(const Config& config);

/// Error(kData) as above unless the weights there match the whole model; with MissingHeads::kFresh
/// the pooler and the heads may be missing, each as a whole. Values are not read.
void check_weight_tensors(const std::string& path, const ParamTable& table, const Dims& dims,
                          MissingHeads missing_heads);

}  // namespace bertha
