#include "data/convert/shard_job.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/format/checksum_list.h"
#include "data/format/output_folder.h"
#include "data/format/shard_reader.h"
#include "data/format/stats.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// What is known of a finished shard.
struct ShardRecord {
  ManifestShard shard;
  int64_t rows = 0;
  DataStats stats;
};

ShardRecord record_of(const std::string& path, const SampleLimits& limits) {
  const ShardContents contents = read_shard_reporting(path, 0, limits, stop_at_violation(path));
  ShardRecord record{
      .shard = {.name = fs::path(path).filename().string(),
                .samples = contents.samples.size(),
                .bytes = static_cast<int64_t>(fs::file_size(path)),
                .xxh3 = xxh3_of_file(path),
                .md5_of_lists = md5_of_lists(contents.samples, contents.row_offsets)},
      .rows = contents.row_offsets.empty() ? contents.samples.size()
                                           : std::ssize(contents.row_offsets) - 1,
      .stats = {}};
  record.stats.add(contents.samples);
  return record;
}

std::string to_text(const ShardRecord& record) {
  return Json{{"name", record.shard.name},
              {"samples", record.shard.samples},
              {"bytes", record.shard.bytes},
              {"xxh3", record.shard.xxh3},
              {"md5_of_lists", record.shard.md5_of_lists},
              {"rows", record.rows},
              {"tokens", record.stats.num_tokens},
              {"masked", record.stats.num_masked},
              {"token_length_histogram", record.stats.token_length_histogram}}
             .dump() +
         "\n";
}

/// Nothing when there is no such record, or it is damaged: then the shard is made again.
std::optional<ShardRecord> read_record(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  try {
    const nlohmann::json json = parse_json(read_text_file(path));
    ShardRecord record{.shard = {.name = json.at("name"),
                                 .samples = json.at("samples"),
                                 .bytes = json.at("bytes"),
                                 .xxh3 = json.at("xxh3"),
                                 .md5_of_lists = json.at("md5_of_lists")},
                       .rows = json.at("rows"),
                       .stats = {}};
    record.stats.num_samples = record.shard.samples;
    record.stats.num_tokens = json.at("tokens");
    record.stats.num_masked = json.at("masked");
    record.stats.token_length_histogram =
        json.at("token_length_histogram").get<std::vector<int64_t>>();
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

bool is_as_recorded(const std::string& path, const ManifestShard& shard) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  return !error && bytes == shard.bytes && xxh3_of_file(path) == shard.xxh3;
}

}  // namespace

JobFolder::JobFolder(const ShardJob& job) : job_(job) {
  for (const auto& [name, value] : job.options) key_ += concat(name, " = ", value, "\n");
  const fs::path folder(job_.output_dir);
  const std::string manifest = (folder / kManifestName).string();
  if (fs::exists(manifest)) {
    manifest_ = read_manifest(manifest);
    check_same_facts(manifest, manifest_.options, job_.options);
    check_shard_names(manifest);
    already_done_ = std::all_of(manifest_.shards.begin(), manifest_.shards.end(),
                                [&](const ManifestShard& shard) {
                                  return is_as_recorded((folder / shard.name).string(), shard);
                                });
    if (already_done_) {
      remove_work_folder(job_.output_dir);  // of a run that was stopped at its very end
      return;
    }
  }
  check_nothing_foreign(job_.output_dir, job_.names);
  work_folder_ = make_work_folder(job_.output_dir);
  const std::string key_path = work_path("key.txt");
  if (fs::exists(key_path) && read_text_file(key_path) != key_) {
    fail(ExitCode::kData, job_.output_dir,
         ": holds unfinished work of another conversion; choose another output folder or remove "
         "this one");
  }
  write_new_file(key_path, key_);
}

std::string JobFolder::work_path(const std::string& name) const {
  return (fs::path(work_folder_) / name).string();
}

void JobFolder::check_shard_names(const std::string& manifest) const {
  std::set<std::string> listed;
  for (const ManifestShard& shard : manifest_.shards) listed.insert(shard.name);
  if (listed == std::set<std::string>(job_.names.begin(), job_.names.end())) return;
  fail(ExitCode::kData, manifest, ": lists ", manifest_.shards.size(),
       " shards, but the conversion that it tells of writes ", job_.names.size(), " (",
       job_.names.front(), " and on); it is damaged: remove it to make the data again");
}

void JobFolder::make_shards(const std::function<void(int64_t shard, const std::string& path)>& make,
                            const ShardProgress& progress) {
  std::vector<std::string> records;
  for (const std::string& name : job_.names) records.push_back(work_path(name + ".json"));
  std::atomic<int64_t> reused = 0;
  const auto work = [&](int64_t shard) {
    const auto i = static_cast<size_t>(shard);
    const std::string path = (fs::path(job_.output_dir) / job_.names[i]).string();
    const std::optional<ShardRecord> known = read_record(records[i]);
    if (known && is_as_recorded(path, known->shard)) {
      ++reused;
      return;
    }
    make(shard, path);
    write_new_file(records[i], to_text(record_of(path, job_.limits)));
  };
  for_each_shard(std::ssize(job_.names), job_.num_threads, work, progress);
  shards_reused_ = reused;
  finish(records);
}

void JobFolder::finish(const std::vector<std::string>& records) {
  int64_t rows = 0;
  DataStats stats;
  manifest_ = Manifest{.tool_version = BERTHA_VERSION,
                       .unicode_version = "",
                       .seed = job_.seed,
                       .limits = job_.limits,
                       .options = job_.options,
                       .counts = {},
                       .sources = job_.sources,
                       .token_length_histogram = {},
                       .shards = {}};
  for (const std::string& path : records) {
    const std::optional<ShardRecord> record = read_record(path);
    if (!record) fail(ExitCode::kData, path, ": cannot be read back; run the same command again");
    rows += record->rows;
    stats.add(record->stats);
    manifest_.shards.push_back(record->shard);
  }
  manifest_.counts = {{"samples", stats.num_samples},
                      {"rows", rows},
                      {"tokens", stats.num_tokens},
                      {"masked_tokens", stats.num_masked}};
  manifest_.token_length_histogram = stats.token_length_histogram;
  manifest_.token_length_histogram.resize(static_cast<size_t>(job_.limits.max_seq_tokens) + 1);
  std::sort(manifest_.shards.begin(), manifest_.shards.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const fs::path folder(job_.output_dir);
  write_checksum_list((folder / kChecksumListName).string(), manifest_.shards);
  write_manifest((folder / kManifestName).string(), manifest_);
  remove_work_folder(job_.output_dir);
}

}  // namespace bertha
