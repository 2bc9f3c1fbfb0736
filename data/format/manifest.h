#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/format/stats.h"

namespace bertha {

/// A text file from which samples were generated.
struct ManifestSource {
  std::string path;
  int64_t bytes = 0;
  std::string sha256;
};

struct ManifestShard {
  std::string name;  // file name inside of the folder
  int64_t samples = 0;
  int64_t bytes = 0;
  std::string xxh3 = {};          // hash of the file, see hashing.h
  std::string md5_of_lists = {};  // md5 of the token ids, see checksum_list.h
};

/// manifest.json: the contents of a data folder and how it was prepared.
struct Manifest {
  std::string tool_version;          // version of the program that wrote the samples
  std::string unicode_version = {};  // of the tokenizer's rules; empty: converted from shards
  uint64_t seed = 0;
  SampleLimits limits;
  std::optional<SpecialTokens> special_ids = {};  // of the vocabulary, if known
  std::map<std::string, std::string> options;     // every option of the run, as text
  std::map<std::string, int64_t> counts = {};     // "documents", "samples", ...
  std::vector<ManifestSource> sources = {};
  // [max_seq_tokens + 1]  samples of that many tokens
  std::vector<int64_t> token_length_histogram = {};
  std::vector<ManifestShard> shards = {};  // in name order

  /// The number of samples in all shards.
  int64_t num_samples() const;
  /// The settings that the text was tokenized with, as to_text(TokenizerSettings): the default ones
  /// for text that version 1.0.0 prepared, which stated none; "" for shards of unknown text.
  std::string tokenizer() const;
};

/// The option that states them.
inline constexpr const char* kTokenizerOption = "tokenizer";

inline constexpr const char* kManifestName = "manifest.json";

/// Appears whole or not at all. Errors: Error(kData) with the path and the reason.
void write_manifest(const std::string& path, const Manifest& manifest);

/// Errors    Error(kData) naming the file, and the field with the type or value wanted.
Manifest read_manifest(const std::string& path);

/// manifest.json of a data folder, or the one next to a shard, whether or not it exists.
std::string manifest_path(const std::string& folder_or_shard);

/// The manifest at manifest_path(), if it exists. Errors as read_manifest().
std::optional<Manifest> find_manifest(const std::string& folder_or_shard);

/// The record of a finished shard: its manifest entry and its part of the counts.
struct ShardRecord {
  ManifestShard shard;
  int64_t rows = 0;  // rows of the datasets: packs in a packed shard, else samples
  DataStats stats = {};
};
/// Reads the shard twice (hash, samples).
ShardRecord describe_shard(const std::string& path, const SampleLimits& limits);

/// Puts the shards into the manifest, in name order, with their samples, tokens, masked tokens and
/// token lengths.
void add_shards(const std::vector<ShardRecord>& records, Manifest& manifest);

/// Errors    Error(kData) naming the file if its hash differs from the one in its manifest.
void check_hash(const std::string& path, const std::string& xxh3);

/// Whether the folder has all of these shards, byte for byte.
bool are_intact(const std::vector<ManifestShard>& shards, const std::string& folder,
                int64_t num_threads);

}  // namespace bertha
