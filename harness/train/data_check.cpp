#include "harness/train/data_check.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "data/files/text_file.h"
#include "data/files/tokenizer_settings.h"
#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/pipeline/synthetic_steps.h"
#include "data/prepare/vocabulary.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/train/data_source.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

void check_path(const char* key, const std::string& path, const char* or_else) {
  constexpr const char* kAdvice =
      "run launch/quickstart, or prepare shards with `bertha data prepare` and give their folder";
  if (path.empty()) fail(ExitCode::kUsage, key, " is not set; ", kAdvice, or_else);
  if (std::error_code error; !fs::exists(path, error)) {
    fail(ExitCode::kData, key, ": ", path, ": no such file or folder; ", kAdvice);
  }
  list_shards(path);
}

void check_vocabulary(const Config& config, int rank) {
  const std::string& path = config.data.vocab;
  if (path.empty()) return;
  const int64_t entries = Vocabulary::load(path).size();
  if (entries > config.model.vocab_size) {
    fail(ExitCode::kUsage, path, ": has ", entries, " entries, but model.vocab_size is ",
         config.model.vocab_size, "; set model.vocab_size to ", entries, " or more.");
  }
  if (entries < config.model.vocab_size && config.checkpoint.init.empty() && rank == 0) {
    log_line(LogLevel::kWarning,
             concat(path, ": has ", entries, " entries, but model.vocab_size is ",
                    config.model.vocab_size, ", so no token uses the other rows; set it to ",
                    entries, " unless you want them"));
  }
}

/// Compares the tokenizer settings that `file` states ("" = unknown) with the settings next to a
/// vocabulary or model: different settings give text different ids.
void check_tokenizer(const std::string& file, const std::string& settings,
                     const std::string& folder_or_file) {
  const bool named = !folder_or_file.empty();
  const std::string found =
      to_text(named ? read_tokenizer_settings(folder_or_file) : TokenizerSettings());
  if (settings.empty() || settings == found) return;
  std::string other =
      named ? tokenizer_config_path(folder_or_file) : "data.vocab, which is not set,";
  if (named && !fs::exists(other)) other += ", which is missing,";
  fail(ExitCode::kData, file, ": states ", settings, ", but ", other, " means ", found,
       "; prepare the shards with the vocabulary of the model (--vocab) and set data.vocab to it, "
       "or correct the tokenizer_config.json that is wrong.");
}

/// Ids of another vocabulary mean other words, although most are within the range of this one.
void check_made_with(const Config& config, const std::string& path, const Manifest& manifest) {
  const auto made_with = manifest.options.find("vocab_sha256");
  if (made_with == manifest.options.end()) return;  // converted data: unknown
  if (manifest.limits.vocab_size > config.model.vocab_size) {
    fail(ExitCode::kUsage, path, ": the shards were prepared with a vocabulary of ",
         manifest.limits.vocab_size, " entries, but model.vocab_size is ", config.model.vocab_size,
         "; set model.vocab_size to ", manifest.limits.vocab_size,
         " or more, or data.verify_manifest to false to train on them anyway.");
  }
  if (manifest.limits.max_seq_tokens > config.data.max_seq_tokens) {
    fail(ExitCode::kUsage, path, ": the shards were prepared with sequences of up to ",
         manifest.limits.max_seq_tokens, " tokens, but data.max_seq_tokens is ",
         config.data.max_seq_tokens, "; set data.max_seq_tokens to ",
         manifest.limits.max_seq_tokens,
         ", or data.verify_manifest to false if every sequence is short enough.");
  }
  if (config.data.vocab.empty()) return;
  const std::string found = vocabulary_sha256(config.data.vocab);
  if (found == made_with->second) return;
  fail(ExitCode::kData, config.data.vocab, ": has the SHA-256 ", found, ", but by ", path,
       " the shards were prepared with the vocabulary ", made_with->second,
       "; set data.vocab to that one, or data.verify_manifest to false to train on them anyway.");
}

void check_shard(const std::string& path, const ManifestShard& wanted, bool opens) {
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  if (bytes != wanted.bytes) {
    fail(ExitCode::kData, path, ": has ", bytes, " bytes, but its manifest states ", wanted.bytes,
         "; prepare or copy the data again.");
  }
  if (!opens) return;
  const int64_t samples = inspect_shard(path).num_samples;
  if (samples != wanted.samples) {
    fail(ExitCode::kData, path, ": contains ", samples, " samples, but its manifest states ",
         wanted.samples, "; prepare or copy the data again.");
  }
}

void check_shards(const Config& config, const std::string& data_path, size_t rank, size_t num_ranks,
                  bool opens) {
  const std::optional<Manifest> manifest = find_manifest(data_path);
  if (!manifest) return;
  check_made_with(config, manifest_path(data_path), *manifest);
  check_tokenizer(manifest_path(data_path), manifest->tokenizer(), config.data.vocab);
  std::map<std::string, const ManifestShard*> known;
  for (const ManifestShard& shard : manifest->shards) known[shard.name] = &shard;

  const std::vector<std::string> shards = list_shards(data_path);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string& path = shards[i];
    const auto found = known.find(fs::path(path).filename().string());
    if (found == known.end()) {
      fail(ExitCode::kData, path, ": is not in ", manifest_path(data_path),
           "; remove it, or set data.verify_manifest to false to train on it anyway.");
    }
    if (i % num_ranks == rank) check_shard(path, *found->second, opens);
  }
  if (fs::is_directory(data_path) && shards.size() != known.size()) {
    fail(ExitCode::kData, data_path, ": contains ", shards.size(),
         " shards, but its manifest lists ", known.size(),
         "; copy the missing ones, or set data.verify_manifest to false.");
  }
}

}  // namespace

std::vector<std::string> known_hashes(const Config& config,
                                      const std::vector<std::string>& shards) {
  if (!config.data.verify_manifest) return {};
  const std::optional<Manifest> manifest = find_manifest(shards.front());
  if (!manifest) return {};
  std::map<std::string, std::string> hash_of;
  for (const ManifestShard& shard : manifest->shards) hash_of[shard.name] = shard.xxh3;
  std::vector<std::string> hashes;
  for (const std::string& path : shards) {
    hashes.push_back(hash_of[fs::path(path).filename().string()]);
  }
  return hashes;
}

void check_data_paths(const Config& config) {
  if (!config.data.synthetic) {
    check_path("data.train", config.data.train, "; data.synthetic=true trains on synthetic data");
  }
  check_eval_path(config);
}

void check_eval_path(const Config& config) {
  const std::string& lengths = config.data.synthetic_lengths;
  if (!config.data.synthetic) {
    check_path("data.eval", config.data.eval, "; its --hold-out makes them, in the folder eval");
  } else if (!lengths.empty()) {
    parse_length_histogram(read_text_file(lengths), lengths);
  }
}

void check_data(const Config& config, int rank, int num_ranks, bool opens_shards) {
  check_vocabulary(config, rank);
  mask_rule(config.data);
  if (!config.data.verify_manifest || config.data.synthetic) return;
  for (const std::string& path : {config.data.train, config.data.eval}) {
    check_shards(config, path, static_cast<size_t>(rank), static_cast<size_t>(num_ranks),
                 opens_shards);
  }
}

void check_initial_tokenizer(const Config& config) {
  if (config.data.synthetic || config.checkpoint.init.empty()) return;
  const std::string folder = locate_weights(config.checkpoint.init).folder;
  check_tokenizer(tokenizer_config_path(folder), to_text(read_tokenizer_settings(folder)),
                  config.data.vocab);
}

void check_eval_vocabulary(const Config& config, const std::string& checkpoint_folder) {
  if (config.data.synthetic) return;
  if (!config.data.verify_manifest) return;
  if (const auto manifest = find_manifest(config.data.eval)) {
    check_made_with(config, manifest_path(config.data.eval), *manifest);
    check_tokenizer(manifest_path(config.data.eval), manifest->tokenizer(), checkpoint_folder);
  }
}

}  // namespace bertha
