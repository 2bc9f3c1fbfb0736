#include "data/convert/data_set_work.h"

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "data/files/hashing.h"
#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "kernels/base/error.h"

namespace bertha {

namespace fs = std::filesystem;

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
  ShardJob job{.output_dir = output_dir,
               .names = std::move(names),
               .options = {{"source_files", concat(files.files.size())},
                           {"source_names_and_sizes_md5", md5_of_text(files_text)},
                           {"sequences", concat(files.num_seqs)},
                           {"max_seq_tokens", concat(options.limits.max_seq_tokens)},
                           {"max_masked_per_seq", concat(options.limits.max_masked_per_seq)},
                           {"vocab_size", concat(options.limits.vocab_size)}},
               .limits = options.limits,
               .num_threads = options.num_threads};
  if (const auto manifest = find_manifest(options.path)) {
    job.sources = manifest->sources;
    if (const auto tokenizer = manifest->options.find(kTokenizerOption);
        tokenizer != manifest->options.end()) {
      job.options.insert(*tokenizer);
    }
    job.counts = manifest->counts;
    std::string hashes;
    for (const ManifestShard& shard : manifest->shards) {
      hashes += concat(shard.name, " ", shard.xxh3, "\n");
    }
    job.options[kSourceHashes] = md5_of_text(hashes);
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
    fail(ExitCode::kUsage, output_dir, ": is the source itself; choose another output folder");
  }
}

std::vector<std::string> numbered_names(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(shard_name(i, count));
  return names;
}

}  // namespace bertha
