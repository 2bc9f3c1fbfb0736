#include "data/manifest.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/hashing.h"
#include "data/new_file.h"
#include "data/shard_reader.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;

/// One value of the file together with its name, so that every complaint can tell where it is.
class Field {
 public:
  Field(const std::string& path, const std::string& name, const Json& value)
      : path_(path), name_(name), value_(value) {}

  Field operator[](const char* key) const {
    if (!value_.is_object()) wrong("an object");
    const auto found = value_.find(key);
    const std::string name = name_.empty() ? key : concat(name_, '.', key);
    if (found == value_.end()) fail(ExitCode::kData, path_, ": field ", name, " is missing");
    return Field(path_, name, *found);
  }

  std::string text() const {
    if (!value_.is_string()) wrong("a string");
    return value_.get<std::string>();
  }

  int64_t count() const {
    if (!value_.is_number_unsigned() || value_.get<uint64_t>() > INT64_MAX) wrong("a count");
    return value_.get<int64_t>();
  }

  uint64_t word() const {
    if (!value_.is_number_unsigned()) wrong("an unsigned integer");
    return value_.get<uint64_t>();
  }

  /// Hex digits of a hash.
  std::string hex(size_t digits) const {
    const std::string found = text();
    if (found.size() != digits ||
        found.find_first_not_of("0123456789abcdef") != std::string::npos) {
      wrong(concat(digits, " hex digits"));
    }
    return found;
  }

  template <class Take>
  void for_each(const Take& take) const {
    if (!value_.is_array()) wrong("a list");
    for (size_t i = 0; i < value_.size(); ++i) {
      take(Field(path_, concat(name_, '[', i, ']'), value_[i]));
    }
  }

  template <class Take>
  void for_each_key(const Take& take) const {
    if (!value_.is_object()) wrong("an object");
    for (const auto& [key, value] : value_.items()) {
      take(key, Field(path_, concat(name_, '.', key), value));
    }
  }

  [[noreturn]] void wrong(const std::string& want) const {
    std::string found = value_.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    fail(ExitCode::kData, path_, ": field ", name_.empty() ? "(the whole file)" : name_, " is ",
         found, ", want ", want);
  }

 private:
  const std::string& path_;
  std::string name_;
  const Json& value_;
};

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
  return {{"format_version", kFormatVersion},
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
}

Manifest from_json(const Field& root) {
  Manifest manifest;
  if (const Field version = root["format_version"]; version.count() != kFormatVersion) {
    version.wrong(concat(kFormatVersion, "; read it with the version that wrote it"));
  }
  manifest.tool_version = root["tool_version"].text();
  manifest.unicode_version = root["unicode_version"].text();
  manifest.seed = root["seed"].word();
  const Field limits = root["limits"];
  manifest.limits = {.max_seq_tokens = limits["max_seq_tokens"].count(),
                     .max_masked_per_seq = limits["max_masked_per_seq"].count(),
                     .vocab_size = limits["vocab_size"].count()};
  root["options"].for_each_key(
      [&](const std::string& key, const Field& value) { manifest.options[key] = value.text(); });
  root["counts"].for_each_key(
      [&](const std::string& key, const Field& value) { manifest.counts[key] = value.count(); });
  root["sources"].for_each([&](const Field& source) {
    manifest.sources.push_back({.path = source["path"].text(),
                                .bytes = source["bytes"].count(),
                                .sha256 = source["sha256"].hex(64)});
  });
  root["token_length_histogram"].for_each(
      [&](const Field& count) { manifest.token_length_histogram.push_back(count.count()); });
  root["shards"].for_each([&](const Field& shard) {
    manifest.shards.push_back({.name = shard["name"].text(),
                               .samples = shard["samples"].count(),
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

void write_manifest(const std::string& path, const Manifest& manifest) {
  // File names may hold bytes that are no UTF-8; the manifest must be JSON nevertheless.
  write_new_file(path,
                 to_json(manifest).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Manifest read_manifest(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    fail(ExitCode::kData, path,
         ": cannot open the manifest; want the file that `data prepare` writes");
  Json root;
  try {
    root = Json::parse(in);
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, path, ": not valid JSON, it is damaged; make it again (", error.what(),
         ")");
  }
  return from_json(Field(path, "", root));
}

ManifestShard describe_shard(const std::string& path, const SampleLimits& limits) {
  const ShardContents shard = read_shard_reporting(path, 0, limits, stop_at_violation(path));
  const std::filesystem::path file(path);
  return {.name = file.filename().string(),
          .samples = shard.samples.size(),
          .bytes = static_cast<int64_t>(std::filesystem::file_size(file)),
          .xxh3 = xxh3_of_file(path),
          .md5_of_lists = md5_of_lists(shard.samples, shard.row_offsets)};
}

}  // namespace bertha
