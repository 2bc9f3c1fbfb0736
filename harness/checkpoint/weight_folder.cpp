#include "harness/checkpoint/weight_folder.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/prepare/tokenizer_files.h"
#include "data/prepare/vocabulary.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/finite.h"
#include "harness/checkpoint/optimizer_files.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/weight_file.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/model/fp8_state.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

StatedModel stated_model(const FolderRequest& request, const WeightPlace& place) {
  if (!request.stated_model.empty()) return read_stated_model(request.stated_model, place.format);
  if (const auto found = find_stated_model(place)) return *found;
  fail(ExitCode::kData, place.folder,
       ": has no config.json or bert_config.json, and the tensors do not show the number of "
       "attention heads; give such a file with --model-config.");
}

void check_vocab(const std::string& path, int64_t entries) {
  const int64_t found = Vocabulary::load(path).size();
  if (found <= entries) return;  // the remaining rows are padding that no text uses
  fail(ExitCode::kData, path, ": has ", found, " entries, but the model has ", entries,
       "; give the vocabulary that it was trained with.");
}

/// Without heads, encoder and pooler have the names of a bare BertModel.
std::vector<NamedRows> names_of(const WeightFolder& folder, ModelHeads heads) {
  constexpr std::string_view kPrefix = "bert.";
  std::vector<NamedRows> names = hugging_face_names(folder.table, make_dims(folder.model));
  if (heads == ModelHeads::kAll) return names;
  std::erase_if(names,
                [&](const NamedRows& rows) { return !rows.foreign_name.starts_with(kPrefix); });
  for (NamedRows& rows : names) rows.foreign_name.erase(0, kPrefix.size());
  return names;
}

/// "109,482,240 weights, all finite".
std::string check_values(const WeightPlace& place) {
  const std::unique_ptr<WeightSource> source = open_weights(place);
  int64_t elements = 0;
  std::set<std::string> other_types;
  for (const auto& [name, tensor] : source->tensors()) {
    if (!is_read_as_float(tensor.dtype)) {
      other_types.insert(tensor.dtype);
      continue;
    }
    const std::vector<float> values = source->read(name);
    const auto count = static_cast<int64_t>(values.size());
    check_finite(ExitCode::kData, place.path, name, values.data(), count);
    elements += count;
  }
  if (elements == 0) {
    fail(ExitCode::kData, place.path, ": contains no weights in F32, F16 or BF16",
         other_types.empty() ? "" : concat(", only in ", joined(other_types, ", ")),
         "; convert the file.");
  }
  return concat(
      elements, " weights, all finite",
      other_types.empty() ? "" : concat("; not read: tensors in ", joined(other_types, ", ")));
}

/// master, m and v of one shard.
void check_optimizer_file(const std::string& path) {
  const SafeTensorsHeader header = read_safetensors_header(path);
  for (const auto& [name, tensor] : header.tensors) {
    check_moments(path, name, read_safetensor(path, header, name, 0, tensor.elements()));
  }
}

/// layers: 0 = unknown.
void check_state(const std::string& path, int64_t layers) {
  const auto scales =
      std::ssize(training_state_from_json(read_text_file(path), path).fp8_scale_exponents);
  if (layers == 0 || scales == 0 || scales == fp8_scale_count(layers) ||
      scales == fp8_encoder_scale_count(layers)) {
    return;
  }
  fail(ExitCode::kData, path, ": fp8_scale_exponents has ", scales, " numbers, want ",
       fp8_scale_count(layers), " for ", layers, " layers; the checkpoint is damaged, use an ",
       "earlier one.");
}

}  // namespace

WeightFolder read_weight_folder(const FolderRequest& request) {
  const WeightPlace place = locate_weights(request.weights.path);
  const StatedModel stated = stated_model(request, place);
  WeightFolder folder{
      .model = stated.model, .table = {}, .flat = {}, .vocab = request.vocab, .loaded = {}};
  WeightRequest weights = request.weights;
  if (request.gelu && *request.gelu != stated.model.gelu) {
    folder.model.gelu = *request.gelu;
    weights.differences = StatedDifferences::kAllow;
  }
  const Dims dims = make_dims(folder.model);
  folder.table = make_param_table(dims, DecayRule::kReference);
  // Checked before memory is allocated for them.
  check_weight_tensors(place.path, folder.table, dims, MissingHeads::kFresh);
  folder.flat.resize(static_cast<size_t>(folder.table.elements));
  folder.loaded = load_weights(weights, folder.model, folder.table, folder.flat.data());
  if (place.format == WeightFormat::kTensorFlow && !request.gelu) {
    folder.loaded.notes.push_back(concat(stated.path, ": its GELU means the ",
                                         word_of(stated.model.gelu),
                                         " form, as in the code of TensorFlow checkpoints; give "
                                         "--gelu for another form"));
  }
  if (folder.vocab.empty() && has_tokenizer_files(place.folder)) folder.vocab = place.folder;
  folder.source_config = source_config(place.path);
  if (!folder.vocab.empty()) check_vocab(folder.vocab, folder.model.vocab_size);
  const bool has_own = !folder.vocab.empty() && fs::exists(tokenizer_config_path(folder.vocab));
  folder.tokenizer = read_tokenizer_settings(has_own ? folder.vocab : place.folder);
  return folder;
}

void write_tokenizer_files(const std::string& vocab, const TokenizerSettings& settings,
                           int64_t max_positions, bool states_defaults, const std::string& folder) {
  if (vocab.empty()) return;
  if (fs::is_directory(vocab)) {
    copy_tokenizer_files(vocab, folder);
  } else {
    const bool is_json = vocab.ends_with(".json");
    write_new_file(folder + (is_json ? "/tokenizer.json" : "/vocab.txt"), read_text_file(vocab));
  }
  const std::string config = tokenizer_config_path(folder);
  const bool is_needed = states_defaults || settings != TokenizerSettings() ||
                         settings != read_tokenizer_settings(folder);
  if (is_needed && !fs::exists(config)) {
    write_new_file(config, tokenizer_config(settings, max_positions));
  }
}

void write_weight_folder(const std::string& path, const WeightFolder& folder, ModelHeads heads,
                         DType dtype) {
  if (fs::exists(path)) {
    fail(ExitCode::kUsage, path, ": already exists; give a new folder, or remove it.");
  }
  const std::string target = fs::absolute(path).lexically_normal().string();
  const std::string partial = make_new_folder(target + ".partial");
  try {
    write_weight_file(partial + "/model.safetensors", names_of(folder, heads), folder.flat.data(),
                      dtype);
    write_new_file(partial + "/config.json",
                   hugging_face_config(folder.model, heads, folder.source_config, dtype));
    write_tokenizer_files(folder.vocab, folder.tokenizer, folder.model.max_positions, true,
                          partial);
    seal_folder(partial, target);
  } catch (const Error&) {
    std::error_code ignored;  // the first error is the one to report
    fs::remove_all(partial, ignored);
    throw;
  }
}

std::vector<std::string> verify_weights(const std::string& path) {
  const WeightPlace place = locate_weights(path);
  std::vector<std::string> checked;
  if (is_complete(place.folder)) {
    verify_folder(place.folder);
    checked.push_back("all files have the size and hash that DONE lists");
  }
  if (place.format == WeightFormat::kTensorFlow) {
    checked.push_back("index and tensors have the checksums that TensorFlow stored");
  }
  const auto stated = find_stated_model(place);
  if (stated) {
    const ParamTable table = make_param_table(make_dims(stated->model), DecayRule::kReference);
    check_weight_tensors(path, table, make_dims(stated->model), MissingHeads::kFresh);
    checked.push_back("names and shapes are those of " + stated->path);
  }
  checked.push_back(check_values(place));
  const std::vector<std::string> optimizer = optimizer_file_names(place.folder);
  for (const std::string& name : optimizer) check_optimizer_file(place.folder + "/" + name);
  if (!optimizer.empty()) {
    checked.push_back(concat("moments of ", optimizer.size(), " optimizer files, all finite"));
  }
  const std::string state = place.folder + "/state.json";
  if (fs::exists(state)) check_state(state, stated ? stated->model.layers : 0);
  return checked;
}

}  // namespace bertha
