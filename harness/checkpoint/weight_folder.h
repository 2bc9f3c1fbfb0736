#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/checkpoint/stated_model.h"

namespace bertha {

/// Weights on the host and the files that belong to them.
struct WeightFolder {
  ModelConfig model;
  ParamTable table;
  std::vector<float> flat;  // [table.elements]
  std::string vocab;        // folder of the tokenizer's files, or a vocab.txt; "" = none
  TokenizerSettings tokenizer = {};
  std::string source_config = {};  // as for hugging_face_config()
  LoadedWeights loaded;            // fresh parts and messages for the user
};

/// What to read, and facts that the files do not state.
struct FolderRequest {
  WeightRequest weights;
  std::string stated_model;      // config.json or bert_config.json; "" = next to the weights
  std::string vocab;             // "" = the tokenizer's files next to the weights, if any
  std::optional<GeluForm> gelu;  // none = as stated
};

/// Reads weights and the other files of a model folder. The tokenizer settings come from the folder
/// of `vocab` if it has tokenizer_config.json, else from the folder of the weights.
///
/// Errors    Error(kData) as load_weights(); if no file states the shape of the model; if the
///           vocabulary has more entries than the model has rows.
WeightFolder read_weight_folder(const FolderRequest& request);

/// Writes model.safetensors, config.json and the tokenizer's files, as transformers reads them, and
/// DONE as for a checkpoint: under a temporary name that is renamed at the end. ModelHeads::kNone
/// writes only encoder and pooler, with the names of a bare BertModel. `dtype`: F32, F16 or BF16.
///
/// Errors    Error(kUsage) if `path` already exists; Error(kData) if it cannot be written.
void write_weight_folder(const std::string& path, const WeightFolder& folder, ModelHeads heads,
                         DType dtype = DType::kF32);

/// Writes the tokenizer's files of a model: copied from a folder, or built from a vocab.txt and its
/// settings. Default settings are written only with `states_defaults`. `vocab` is "" for none.
void write_tokenizer_files(const std::string& vocab, const TokenizerSettings& settings,
                           int64_t max_positions, bool states_defaults, const std::string& folder);

/// Reads all files and checks them: hashes, checksums, names and shapes against the config.json
/// next to the weights, finite numbers, and in a checkpoint of Bertha the optimizer's moments.
/// Returns one line per check.
///
/// Errors    Error(kData) naming the first fault.
std::vector<std::string> verify_weights(const std::string& path);

}  // namespace bertha
