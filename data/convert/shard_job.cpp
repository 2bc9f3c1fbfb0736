#include "data/convert/shard_job.h"

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "data/files/hashing.h"
#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/format/checksum_list.h"
#include "data/format/output_folder.h"
#include "kernels/base/error.h"

namespace bertha {

// The records of finished shards, with the counts that the manifest contains.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ManifestShard, name, samples, bytes, xxh3, md5_of_lists)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DataStats, num_samples, num_tokens, num_masked,
                                   token_length_histogram)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ShardRecord, shard, rows, stats)

namespace {

namespace fs = std::filesystem;

/// The option that states the md5 over names and hashes of the source's shards. Only manifests of
/// sources with a manifest have it.
constexpr const char* kSourceHashes = "source_hashes_md5";

}  // namespace

JobFolder::JobFolder(const ShardJob& job) : job_(job), lock_(lock_output_folder(job.output_dir)) {
  for (const auto& [name, value] : job.manifest.options) key_ += concat(name, " = ", value, "\n");
  const fs::path folder(job_.output_dir);
  const std::string manifest = (folder / kManifestName).string();
  if (fs::exists(manifest)) {
    result_.manifest = read_manifest(manifest);
    DataFacts facts = job_.manifest.options;
    if (!result_.manifest.options.contains(kSourceHashes)) facts.erase(kSourceHashes);
    check_same_facts(manifest, result_.manifest.options, facts);
    check_shard_names(manifest);
    result_.already_done = are_intact(result_.manifest.shards, job_.output_dir, job_.num_threads);
    if (result_.already_done) {
      remove_work_folder(job_.output_dir);  // left by a run that was stopped at its very end
      return;
    }
  }
  check_nothing_foreign(job_.output_dir, job_.names);
  work_folder_ = make_work_folder(job_.output_dir);
  const std::string key_path = work_path("key.txt");
  if (fs::exists(key_path) && read_text_file(key_path) != key_) {
    fail(ExitCode::kData, job_.output_dir,
         ": contains unfinished work of another conversion; choose another output folder or remove "
         "this one");
  }
  write_new_file(key_path, key_);
}

std::string JobFolder::work_path(const std::string& name) const {
  return (fs::path(work_folder_) / name).string();
}

void JobFolder::check_shard_names(const std::string& manifest) const {
  std::set<std::string> listed;
  for (const ManifestShard& shard : result_.manifest.shards) listed.insert(shard.name);
  if (listed == std::set<std::string>(job_.names.begin(), job_.names.end())) return;
  fail(ExitCode::kData, manifest, ": lists ", result_.manifest.shards.size(),
       " shards, but the conversion that it describes writes ", job_.names.size(), " (",
       job_.names.front(), " and so on); it is damaged, remove it to convert the data again");
}

void JobFolder::make_shards(const std::function<void(int64_t shard, const std::string& path)>& make,
                            const ItemProgress& progress) {
  std::vector<std::string> records;
  for (const std::string& name : job_.names) records.push_back(work_path(name + ".json"));
  std::atomic<int64_t> reused = 0;
  const auto work = [&](int64_t shard) {
    const auto i = static_cast<size_t>(shard);
    const std::string path = (fs::path(job_.output_dir) / job_.names[i]).string();
    const std::optional<ShardRecord> known = read_json_record<ShardRecord>(records[i]);
    if (known && are_intact({known->shard}, job_.output_dir, 1)) {
      ++reused;
      return;
    }
    make(shard, path);
    write_new_file(records[i],
                   nlohmann::json(describe_shard(path, job_.manifest.limits)).dump() + "\n");
  };
  for_each_parallel(std::ssize(job_.names), job_.num_threads, work, progress);
  result_.shards_reused = reused;
  finish(records);
}

void JobFolder::finish(const std::vector<std::string>& record_paths) {
  result_.manifest = job_.manifest;
  std::vector<ShardRecord> records;
  int64_t rows = 0;
  for (const std::string& path : record_paths) {
    const std::optional<ShardRecord> record = read_json_record<ShardRecord>(path);
    if (!record) fail(ExitCode::kData, path, ": cannot be read back; run the same command again");
    rows += record->rows;
    records.push_back(*record);
  }
  add_shards(records, result_.manifest);
  result_.manifest.counts["rows"] = rows;
  const fs::path folder(job_.output_dir);
  write_checksum_list((folder / kChecksumListName).string(), result_.manifest.shards);
  write_manifest((folder / kManifestName).string(), result_.manifest);
  remove_work_folder(job_.output_dir);
}

SequenceFiles inspect_source(const SourceOptions& options, const WorkProgress& progress) {
  return inspect_sequence_files(list_sequence_files(options.path, options.missing),
                                options.max_seqs, options.num_threads,
                                progress_of(progress, "inspect", "files"));
}

ShardJob job_of_source(const SourceOptions& options, const SequenceFiles& files,
                       const std::string& output_dir, std::vector<std::string> names) {
  std::string files_text;
  for (const SequenceFile& file : files.files) {
    files_text += concat(fs::path(file.path).filename().string(), " ", file.bytes, "\n");
  }
  ShardJob job{
      .output_dir = output_dir,
      .names = std::move(names),
      .manifest = {.tool_version = BERTHA_VERSION,
                   .limits = options.limits,
                   .options = {{"source_files", concat(files.files.size())},
                               {"source_names_and_sizes_md5", md5_of_text(files_text)},
                               {"sequences", concat(files.num_seqs)},
                               {"max_seq_tokens", concat(options.limits.max_seq_tokens)},
                               {"max_masked_per_seq", concat(options.limits.max_masked_per_seq)},
                               {"vocab_size", concat(options.limits.vocab_size)}}},
      .num_threads = options.num_threads};
  if (const auto manifest = find_manifest(options.path)) {
    job.manifest.sources = manifest->sources;
    job.manifest.counts = manifest->counts;
    job.manifest.special_ids = manifest->special_ids;
    if (const auto tokenizer = manifest->options.find(kTokenizerOption);
        tokenizer != manifest->options.end()) {
      job.manifest.options.insert(*tokenizer);
    }
    std::string hashes;
    for (const ManifestShard& shard : manifest->shards) {
      hashes += concat(shard.name, " ", shard.xxh3, "\n");
    }
    job.manifest.options[kSourceHashes] = md5_of_text(hashes);
  }
  return job;
}

void check_source(const SourceOptions& options, const SequenceFiles& files,
                  const WorkProgress& progress) {
  const std::optional<Manifest> manifest = find_manifest(options.path);
  if (!manifest) return;
  std::map<std::string, std::string> xxh3_of_name;
  for (const ManifestShard& shard : manifest->shards) xxh3_of_name[shard.name] = shard.xxh3;
  const auto check = [&](int64_t index) {
    const std::string& path = files.files[static_cast<size_t>(index)].path;
    const auto known = xxh3_of_name.find(fs::path(path).filename().string());
    if (known != xxh3_of_name.end()) check_hash(path, known->second);
  };
  for_each_parallel(std::ssize(files.files), options.num_threads, check,
                    progress_of(progress, "verify", "files"));
}

void refuse_same_folder(const SourceOptions& options, const std::string& output_dir) {
  std::error_code ignored;
  if (fs::equivalent(options.path, output_dir, ignored)) {
    fail(ExitCode::kUsage, output_dir, ": is the input itself; choose another output folder");
  }
}

}  // namespace bertha
