#include "data/format/manifest.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/files/tokenizer_settings.h"
#include "data/format/checksum_list.h"
#include "data/format/shard_reader.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxSamples = int64_t{1} << 40;  // per shard or length; sums cannot overflow

// The fields of special_ids.
constexpr std::array kSpecialFields{
    std::pair("pad", &SpecialTokens::pad), std::pair("unknown", &SpecialTokens::unknown),
    std::pair("classify", &SpecialTokens::classify),
    std::pair("separator", &SpecialTokens::separator), std::pair("mask", &SpecialTokens::mask)};

Json to_json(const Manifest& manifest) {
  Json sources = Json::array();
  for (const ManifestSource& source : manifest.sources) {
    sources.push_back({{"path", source.path}, {"bytes", source.bytes}, {"sha256", source.sha256}});
  }
  Json shards = Json::array();
  for (const ManifestShard& shard : manifest.shards) {
    shards.push_back({{"name", shard.name},
                      {"samples", shard.samples},
                      {"bytes", shard.bytes},
                      {"xxh3", shard.xxh3},
                      {"md5_of_lists", shard.md5_of_lists}});
  }
  Json json{{"format_version", kFormatVersion},
            {"tool_version", manifest.tool_version},
            {"unicode_version", manifest.unicode_version},
            {"seed", manifest.seed},
            {"limits",
             {{"max_seq_tokens", manifest.limits.max_seq_tokens},
              {"max_masked_per_seq", manifest.limits.max_masked_per_seq},
              {"vocab_size", manifest.limits.vocab_size}}},
            {"options", Json(manifest.options)},
            {"counts", Json(manifest.counts)},
            {"sources", std::move(sources)},
            {"token_length_histogram", manifest.token_length_histogram},
            {"shards", std::move(shards)}};
  if (const auto& special = manifest.special_ids) {
    for (const auto& [name, id] : kSpecialFields) json["special_ids"][name] = (*special).*id;
  }
  return json;
}

Manifest from_json(const JsonField& root) {
  Manifest manifest;
  if (const JsonField version = root["format_version"]; version.count() != kFormatVersion) {
    version.wrong(concat(kFormatVersion, "; read it with the version that wrote it"));
  }
  manifest.tool_version = root["tool_version"].text();
  manifest.unicode_version = root["unicode_version"].text();
  manifest.seed = root["seed"].word();
  const JsonField limits = root["limits"];
  // Positions are int16.
  manifest.limits = {.max_seq_tokens = limits["max_seq_tokens"].integer(1, 32767),
                     .max_masked_per_seq = limits["max_masked_per_seq"].integer(0, 32767),
                     .vocab_size = limits["vocab_size"].integer(1, kMaxVocabEntries)};
  if (root.contains("special_ids")) {
    SpecialTokens& special = manifest.special_ids.emplace();
    for (const auto& [name, id] : kSpecialFields) {
      special.*id = static_cast<TokenId>(
          root["special_ids"][name].integer(0, manifest.limits.vocab_size - 1));
    }
  }
  root["options"].for_each_key([&](const std::string& key, const JsonField& value) {
    manifest.options[key] = value.text();
  });
  root["counts"].for_each_key([&](const std::string& key, const JsonField& value) {
    manifest.counts[key] = value.count();
  });
  root["sources"].for_each([&](const JsonField& source) {
    manifest.sources.push_back({.path = source["path"].text(),
                                .bytes = source["bytes"].count(),
                                .sha256 = source["sha256"].hex(64)});
  });
  root["token_length_histogram"].for_each([&](const JsonField& count) {
    manifest.token_length_histogram.push_back(count.integer(0, kMaxSamples));
  });
  root["shards"].for_each([&](const JsonField& shard) {
    manifest.shards.push_back({.name = shard["name"].text(),
                               .samples = shard["samples"].integer(0, kMaxSamples),
                               .bytes = shard["bytes"].count(),
                               .xxh3 = shard["xxh3"].hex(32),
                               .md5_of_lists = shard["md5_of_lists"].hex(32)});
  });
  return manifest;
}

}  // namespace

int64_t Manifest::num_samples() const {
  int64_t sum = 0;
  for (const ManifestShard& shard : shards) sum += shard.samples;
  return sum;
}

std::string Manifest::tokenizer() const {
  if (const auto stated = options.find(kTokenizerOption); stated != options.end()) {
    return stated->second;
  }
  return options.contains("vocab_sha256") ? to_text(TokenizerSettings()) : "";
}

void write_manifest(const std::string& path, const Manifest& manifest) {
  // File names may contain bytes that are not UTF-8; the manifest must be JSON nevertheless.
  write_new_file(path,
                 to_json(manifest).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Manifest read_manifest(const std::string& path) {
  try {
    const nlohmann::json root = parse_json(read_text_file(path));
    return from_json(JsonField(path, root));
  } catch (const JsonError& error) {
    fail(ExitCode::kData, path, ": not valid JSON, it is damaged; prepare the data again (",
         error.what(), ")");
  }
}

std::string manifest_path(const std::string& folder_or_shard) {
  const fs::path path(folder_or_shard);
  return ((fs::is_directory(path) ? path : path.parent_path()) / kManifestName).string();
}

std::optional<Manifest> find_manifest(const std::string& folder_or_shard) {
  const std::string path = manifest_path(folder_or_shard);
  return fs::exists(path) ? std::optional(read_manifest(path)) : std::nullopt;
}

ShardRecord describe_shard(const std::string& path, const SampleLimits& limits) {
  const auto [samples, row_offsets] =
      read_shard_reporting(path, 0, limits, stop_at_violation(path));
  ShardRecord record{.shard = {.name = fs::path(path).filename().string(),
                               .samples = samples.size(),
                               .bytes = static_cast<int64_t>(fs::file_size(path)),
                               .xxh3 = xxh3_of_file(path),
                               .md5_of_lists = md5_of_lists(samples, row_offsets)},
                     .rows = row_offsets.empty() ? samples.size() : std::ssize(row_offsets) - 1};
  record.stats.add(samples);
  return record;
}

void add_shards(const std::vector<ShardRecord>& records, Manifest& manifest) {
  DataStats stats;
  for (const ShardRecord& record : records) {
    stats.add(record.stats);
    manifest.shards.push_back(record.shard);
  }
  std::ranges::sort(manifest.shards, {}, &ManifestShard::name);
  manifest.counts["samples"] = stats.num_samples;
  manifest.counts["tokens"] = stats.num_tokens;
  manifest.counts["masked_tokens"] = stats.num_masked;
  manifest.token_length_histogram = stats.token_length_histogram;
  manifest.token_length_histogram.resize(static_cast<size_t>(manifest.limits.max_seq_tokens) + 1);
}

void check_hash(const std::string& path, const std::string& xxh3) {
  const std::string found = xxh3_of_file(path);
  if (found == xxh3) return;
  fail(ExitCode::kData, path, ": has the hash ", found, ", but its manifest states ", xxh3,
       "; the file is damaged, prepare or copy it again");
}

bool are_intact(const std::vector<ManifestShard>& shards, const std::string& folder,
                int64_t num_threads) {
  const auto has_size = [&](const ManifestShard& shard) {
    std::error_code error;
    const auto bytes = static_cast<int64_t>(fs::file_size(fs::path(folder) / shard.name, error));
    return !error && bytes == shard.bytes;
  };
  if (!std::ranges::all_of(shards, has_size)) return false;
  std::atomic<bool> intact{true};
  for_each_parallel(std::ssize(shards), num_threads, [&](int64_t index) {
    const ManifestShard& shard = shards[static_cast<size_t>(index)];
    if (intact && xxh3_of_file((fs::path(folder) / shard.name).string()) != shard.xxh3) {
      intact = false;
    }
  });
  return intact;
}

}  // namespace bertha
