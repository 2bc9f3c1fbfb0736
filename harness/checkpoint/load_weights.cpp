#include "harness/checkpoint/load_weights.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/finite.h"
#include "harness/checkpoint/model_garden.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

constexpr size_t kMaxListed = 8;  // differences in one message

constexpr std::array kOptionalParts = {ModelPart::kPooler, ModelPart::kMaskedTokenHead,
                                       ModelPart::kSentenceHead};

/// The tensors of a source that contain weights, by the names that the model looks for.
struct Meanings {
  std::map<std::string, std::string> names;  // the model's name -> the writer's
  std::vector<std::string> unused;           // the writer's names of tensors that were not trained
  bool has_padding = false;                  // learned padding rows, in a checkpoint of Bertha
  // Copies of tied tensors, compared with the tensors that they are tied to; the writer's names.
  std::string decoder_weight;
  std::string decoder_bias;
};

class MeaningReader {
 public:
  MeaningReader(const WeightPlace& place, const WeightSource& source)
      : place_(place), source_(source) {}

  Meanings read() {
    if (source_.naming() == WeightNaming::kModelGarden) return read_model_garden();
    for (const auto& [name, tensor] : source_.tensors()) {
      if (source_.naming() == WeightNaming::kOfficialTensorFlow) {
        if (!is_optimizer_state_in_tensorflow(name)) add(name, name);
      } else if (name == kDecoderWeight) {
        meanings_.decoder_weight = name;
      } else if (name == kDecoderBias) {
        meanings_.decoder_bias = name;
      } else if (is_padding_name(name)) {
        meanings_.has_padding = true;
      } else if (!is_position_buffer(name)) {
        add(modern_hugging_face_name(name), name);
      }
    }
    // Writers that keep one of two tied names store the output bias only under the decoder's name.
    if (!meanings_.decoder_bias.empty() && !meanings_.names.contains("cls.predictions.bias")) {
      add("cls.predictions.bias", meanings_.decoder_bias);
      meanings_.decoder_bias.clear();
    }
    return meanings_;
  }

 private:
  Meanings read_model_garden() {
    const auto& tensors = source_.tensors();
    const bool head_has_pooler = std::ranges::any_of(
        tensors, [](const auto& entry) { return is_pooler_of_head(entry.first); });
    for (const auto& [name, tensor] : tensors) {
      if (is_optimizer_state_in_tensorflow(name)) continue;
      if (head_has_pooler && is_pooler_of_encoder(name)) {
        meanings_.unused.push_back(name);
        continue;
      }
      const std::string official = official_name_of(name, tensor.shape);
      add(official.empty() ? name : official, name);
    }
    return meanings_;
  }

  void add(const std::string& meaning, const std::string& name) {
    const auto [at, is_new] = meanings_.names.emplace(meaning, name);
    if (is_new) return;
    fail(ExitCode::kData, place_.path, ": ", at->second, " and ", name, " are both ", meaning,
         "; remove one of them.");
  }

  const WeightPlace& place_;
  const WeightSource& source_;
  Meanings meanings_;
};

std::vector<NamedRows> wanted_tensors(const WeightSource& source, const ParamTable& table,
                                      const Dims& dims) {
  switch (source.naming()) {
    case WeightNaming::kHuggingFace:
      return hugging_face_names(table, dims);
    case WeightNaming::kOfficialTensorFlow:
      return tensorflow_names(table, dims);
    case WeightNaming::kModelGarden:
      return model_garden_names(table, dims);
  }
  return {};
}

/// The parts without any tensor in the source.
std::vector<ModelPart> missing_parts(const std::vector<NamedRows>& wanted,
                                     const Meanings& meanings) {
  std::vector<ModelPart> missing;
  for (const ModelPart part : kOptionalParts) {
    const bool found = std::ranges::any_of(wanted, [&](const NamedRows& rows) {
      return rows.part == part && meanings.names.contains(rows.foreign_name);
    });
    if (!found) missing.push_back(part);
  }
  return missing;
}

bool contains(const std::vector<ModelPart>& parts, ModelPart part) {
  return std::ranges::find(parts, part) != parts.end();
}

std::string listed(const std::vector<ModelPart>& parts) {
  return "no " + joined(parts, ", no ", name_of);
}

/// Initial values of the parts that the file lacks.
std::string initial_values(const std::vector<ModelPart>& parts, bool trains_sentence_head) {
  if (trains_sentence_head || !contains(parts, ModelPart::kSentenceHead)) {
    return "initialized with random weights";
  }
  const char* const why = "zero because train.nsp_weight is 0";
  return parts.size() == 1
             ? concat("left ", why)
             : concat("initialized with random weights, the sentence head left ", why);
}

void refuse_missing(const WeightPlace& place, const std::vector<ModelPart>& parts) {
  if (parts.empty()) return;
  fail(ExitCode::kData, place.path, ": has ", listed(parts),
       "; set checkpoint.init_missing_heads to fresh, or give --missing-heads fresh, to initialize "
       "them.");
}

/// The common prefix of all names up to a dot, "roberta."; "" = none.
std::string common_first_part(const std::map<std::string, std::string>& names) {
  if (names.empty()) return "";
  const std::string& first = names.begin()->first;
  const std::string part = first.substr(0, first.find('.') + 1);
  const bool is_common =
      std::ranges::all_of(names, [&](const auto& entry) { return entry.first.starts_with(part); });
  return is_common ? part : "";
}

/// Whether a tensor belongs to a head that Bertha does not have, and transformers ignores too.
bool is_foreign_head(const WeightSource& source, const std::string& meaning) {
  return source.naming() == WeightNaming::kHuggingFace && !meaning.starts_with("bert.");
}

/// Fails with one message that lists all differences between the tensors and the model's. Returns
/// the writer's names of tensors that are left out: other heads.
std::vector<std::string> check_tensors(const WeightPlace& place, const WeightSource& source,
                                       const Meanings& meanings,
                                       const std::vector<NamedRows>& wanted,
                                       const std::vector<ModelPart>& absent) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  std::vector<std::string> missing;
  for (const NamedRows& rows : wanted) {
    known.insert(rows.foreign_name);
    if (contains(absent, rows.part)) continue;
    const auto found = meanings.names.find(rows.foreign_name);
    if (found == meanings.names.end()) {
      missing.push_back(rows.foreign_name);
      differences.push_back(rows.foreign_name + " is missing");
      continue;
    }
    const std::vector<int64_t>& shape = source.tensors().at(found->second).shape;
    if (shape == rows.foreign_shape) continue;
    differences.push_back(concat(found->second, " is ", shape_text(shape), ", want ",
                                 shape_text(rows.foreign_shape)));
  }
  std::vector<std::string> left_out;
  for (const auto& [meaning, name] : meanings.names) {
    if (known.contains(meaning)) continue;
    const std::string near = nearest_word(meaning, missing);
    if (near.empty() && is_foreign_head(source, meaning)) {
      left_out.push_back(name);
      continue;
    }
    differences.push_back(concat(name, " ", shape_text(source.tensors().at(name).shape),
                                 " is unknown",
                                 near.empty() ? "" : concat(" (nearest: ", near, ")")));
  }
  if (differences.empty()) return left_out;
  const std::string prefix = common_first_part(meanings.names);
  const bool is_bert = std::ranges::any_of(
      meanings.names, [&](const auto& entry) { return known.contains(entry.first); });
  if (!is_bert && source.naming() == WeightNaming::kHuggingFace) {
    fail(ExitCode::kData, place.path, ": contains no tensor of BERT",
         prefix.empty() ? "" : concat("; all names begin with ", prefix),
         "; give weights of BERT, the only model that this program trains.");
  }
  const size_t count = differences.size();
  std::string text = joined(differences | std::views::take(kMaxListed), "; ");
  if (count > kMaxListed) text += concat("; and ", count - kMaxListed, " more");
  fail(ExitCode::kData, place.path, ": is a checkpoint of another model: ", text,
       "; correct the shape in the config.json next to it, or the keys under model, which override "
       "it.");
}

/// Fails unless the second copy of a tensor that our model has once is equal, bit for bit.
void check_tied(const WeightPlace& place, const WeightSource& source, const std::string& copy,
                const std::string& original) {
  if (copy.empty()) return;
  const bool same = source.tensors().at(copy).shape == source.tensors().at(original).shape &&
                    source.read(copy) == source.read(original);
  if (same) return;
  fail(ExitCode::kData, place.path, ": ", copy, " differs from ", original,
       ", to which this program ties it; give weights of a model whose decoder is tied.");
}

void load_rows(const WeightPlace& place, const WeightSource& source, const std::string& name,
               const NamedRows& rows, float* flat) {
  const std::vector<float> values = source.read(name);
  check_finite(ExitCode::kData, place.path, name, values.data(),
               static_cast<int64_t>(values.size()));
  float* out = flat + rows.first_element;
  if (!rows.transposed) {
    std::copy(values.begin(), values.end(), out);
    return;
  }
  const auto inputs = static_cast<size_t>(rows.foreign_shape[0]);
  const auto outputs = static_cast<size_t>(rows.foreign_shape[1]);
  constexpr size_t kTile = 32;  // rows and columns that fit into the cache
  for (size_t first = 0; first < outputs; first += kTile) {
    for (size_t i = 0; i < inputs; ++i) {
      for (size_t o = first; o < std::min(first + kTile, outputs); ++o) {
        out[o * inputs + i] = values[i * outputs + o];
      }
    }
  }
}

/// Loads padding rows of the vocabulary if the model includes them in its softmax. Returns a
/// message if the loaded model computes something else than the run that saved it, else "".
std::string load_padding(const WeightPlace& place, const WeightSource& source, bool has_padding,
                         const std::vector<NamedRows>& padding, const ModelConfig& model,
                         float* flat) {
  const std::string state = place.folder + "/state.json";
  if (!has_padding) {
    const bool lost =
        model.padded_vocab_in_softmax && !padding.empty() && std::filesystem::exists(state);
    return lost ? place.path +
                      " was saved without the padding rows of the vocabulary that it had learned: "
                      "they are zero here, so accuracy and loss differ from the run's own"
                : "";
  }
  if (!model.padded_vocab_in_softmax) {
    return place.path +
           " has padding rows of the vocabulary that its softmax included; they are left out "
           "because model.padded_vocab_in_softmax is false";
  }
  for (const NamedRows& rows : padding) {
    const auto found = source.tensors().find(rows.foreign_name);
    const bool fits = found != source.tensors().end() && found->second.shape == rows.foreign_shape;
    if (!fits) {
      fail(ExitCode::kData, place.path, ": ", rows.foreign_name, " is ",
           found == source.tensors().end() ? "missing" : shape_text(found->second.shape), ", want ",
           shape_text(rows.foreign_shape), "; set model.vocab_size to that of the checkpoint.");
    }
    load_rows(place, source, rows.foreign_name, rows, flat);
  }
  return "";
}

/// Notes on settings that differ in the file next to the weights; fails unless the request allows
/// these.
std::vector<std::string> check_stated(const WeightPlace& place, const WeightRequest& request,
                                      const ModelConfig& model) {
  const std::optional<StatedModel> stated = find_stated_model(place);
  if (!stated) return {};
  std::vector<std::string> differences = silent_differences(*stated, model);
  if (differences.empty() || request.differences == StatedDifferences::kAllow) return differences;
  fail(ExitCode::kData, place.path, ": was trained as another model: ", joined(differences, "; "),
       "; set these keys to the stated values, or checkpoint.init_differences to allow to use the "
       "weights in a model that computes something else from them.");
}

}  // namespace

void check_weight_tensors(const std::string& path, const ParamTable& table, const Dims& dims,
                          MissingHeads missing_heads) {
  const WeightPlace place = locate_weights(path);
  const std::unique_ptr<WeightSource> source = open_weights(place);
  const Meanings meanings = MeaningReader(place, *source).read();
  const std::vector<NamedRows> wanted = wanted_tensors(*source, table, dims);
  const std::vector<ModelPart> absent = missing_parts(wanted, meanings);
  check_tensors(place, *source, meanings, wanted, absent);
  if (missing_heads == MissingHeads::kRefuse) refuse_missing(place, absent);
}

void check_initial_weights(const Config& config) {
  if (config.checkpoint.init.empty()) return;
  const Dims dims = make_dims(config.model);
  check_weight_tensors(config.checkpoint.init, make_param_table(dims, config.optimizer.decay_rule),
                       dims, config.checkpoint.init_missing_heads);
}

WeightRequest weight_request(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  return {.path = checkpoint.init,
          .missing_heads = checkpoint.init_missing_heads,
          .differences = checkpoint.init_differences,
          .seed = static_cast<uint64_t>(config.train.seed),
          .trains_sentence_head = config.train.nsp_weight > 0};
}

LoadedWeights load_weights(const WeightRequest& request, const ModelConfig& model,
                           const ParamTable& table, float* flat) {
  const WeightPlace place = locate_weights(request.path);
  if (place.format == WeightFormat::kHuggingFace && is_complete(place.folder)) {
    verify_folder(place.folder, {std::filesystem::path(place.path).filename().string()});
  }
  const std::unique_ptr<WeightSource> source = open_weights(place);
  const Dims dims = make_dims(model);
  const std::vector<NamedRows> wanted = wanted_tensors(*source, table, dims);
  const Meanings meanings = MeaningReader(place, *source).read();
  LoadedWeights loaded{.path = place.path, .fresh = missing_parts(wanted, meanings), .notes = {}};
  const std::vector<std::string> left_out =
      check_tensors(place, *source, meanings, wanted, loaded.fresh);
  loaded.notes = check_stated(place, request, model);
  if (!source->prefix().empty()) {
    loaded.notes.push_back(concat(place.path, ": its names are read without ", source->prefix(),
                                  ", a prefix from a wrapper of PyTorch"));
  }
  if (request.missing_heads == MissingHeads::kRefuse) refuse_missing(place, loaded.fresh);
  if (!left_out.empty()) {
    loaded.notes.push_back(concat(place.path, ": left out because this model has no such heads: ",
                                  joined(left_out | std::views::take(kMaxListed), ", "),
                                  left_out.size() > kMaxListed
                                      ? concat(" and ", left_out.size() - kMaxListed, " more")
                                      : ""));
  }
  if (!meanings.decoder_weight.empty()) {
    check_tied(place, *source, meanings.decoder_weight,
               meanings.names.at("bert.embeddings.word_embeddings.weight"));
  }
  if (!meanings.decoder_bias.empty()) {
    check_tied(place, *source, meanings.decoder_bias, meanings.names.at("cls.predictions.bias"));
  }

  for (const std::string& name : meanings.unused) {
    loaded.notes.push_back(concat(
        place.path, ": ", name, " is not read because the next-sentence head has its own pooler"));
  }

  std::fill_n(flat, table.elements, 0.0f);
  if (!loaded.fresh.empty()) {
    initialize(table, dims, model.init_stddev, request.seed, flat);
    loaded.notes.push_back(concat(place.path, " has ", listed(loaded.fresh), ": ",
                                  initial_values(loaded.fresh, request.trains_sentence_head),
                                  "; all other tensors are loaded"));
  }
  for (const NamedRows& rows : wanted) {
    if (contains(loaded.fresh, rows.part)) continue;
    load_rows(place, *source, meanings.names.at(rows.foreign_name), rows, flat);
  }
  const std::string note =
      load_padding(place, *source, meanings.has_padding, padding_names(table, dims), model, flat);
  if (!note.empty()) loaded.notes.push_back(note);
  return loaded;
}

}  // namespace bertha
