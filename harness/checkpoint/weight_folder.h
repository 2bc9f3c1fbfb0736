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
  LoadedWeights loaded;            // which parts are fresh, and messages for the user
};

/// What to read, and what the reader knows that the files do not say.
struct FolderRequest {
  WeightRequest weights;
  std::string stated_model;      // config.json or bert_config.json; "" = next to the weights
  std::string vocab;             // "" = the tokenizer's files next to the weights, if any
  std::optional<GeluForm> gelu;  // none = as stated
};

/// Reads weights with all that a folder of them needs. The tokenizer settings come from the folder
/// of `vocab` if it has tokenizer_config.json, else from the folder of the weights.
///
/// Errors    Error(kData) as load_weights(); no file that states the shape of the model; a
///           vocabulary of more entries than the model has rows.
WeightFolder read_weight_folder(const FolderRequest& request);

/// Writes model.safetensors, config.json and the tokenizer's files, as transformers reads them, and
/// DONE as for a checkpoint: under a temporary name that is renamed at the end. ModelHeads::kNone
/// writes encoder and pooler alone, under the names of a bare BertModel. `dtype`: F32, F16 or BF16.
///
/// Errors    Error(kUsage) when `path` is there already; Error(kData) when it cannot be written.
void write_weight_folder(const std::string& path, const WeightFolder& folder, ModelHeads heads,
                         DType dtype = DType::kF32);

/// The tokenizer's files of a model: copied from a folder, or made from a vocab.txt and the
/// settings for it, which are left out if they are the defaults unless `states_defaults`. `vocab`
/// is "" for none.
void write_tokenizer_files(const std::string& vocab, const TokenizerSettings& settings,
                           int64_t max_positions, bool states_defaults, const std::string& folder);

/// Reads everything there is to read and checks it: hashes, checksums, names and shapes against the
/// config.json next to the weights, finite numbers, and in a checkpoint of ours the optimizer's
/// moments. Returns what was checked, a line each.
///
/// Errors    Error(kData) naming the first thing that is wrong.
std::vector<std::string> verify_weights(const std::string& path);

}  // namespace bertha
