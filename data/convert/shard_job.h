#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/manifest.h"
#include "data/format/output_folder.h"

namespace bertha {

/// The option that states the md5 over names and hashes of the source's shards. Only manifests of
/// sources with a manifest have it.
inline constexpr const char* kSourceHashes = "source_hashes_md5";

/// A folder of shards to be made, in a way that a stopped run can be taken up again.
struct ShardJob {
  std::string output_dir;
  std::vector<std::string> names;              // of the shards
  std::map<std::string, std::string> options;  // everything that decides them, for the manifest
  SampleLimits limits;
  std::vector<ManifestSource> sources = {};    // texts, where they are known
  std::map<std::string, int64_t> counts = {};  // of the texts
  uint64_t seed = 0;
  int64_t num_threads = 0;
};

/// How far a job is. While it runs, `output_dir`/work holds its key, the spill files and a record
/// of every finished shard; at the end manifest.json and checksums.chk are written and work goes.
class JobFolder {
 public:
  /// Errors    Error(kData) when the folder holds something else: a finished data set, the work of
  ///           another job, a folder `work` or shards that no job made.
  explicit JobFolder(const ShardJob& job);

  /// Whether an earlier run has finished it all: manifest() is that of the folder then.
  bool already_done() const { return already_done_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t shards_reused() const { return shards_reused_; }
  std::string work_path(const std::string& name) const;

  /// Makes what is not there yet, each shard by make(shard, path), reads it back for the records,
  /// and ends the job.
  void make_shards(const std::function<void(int64_t shard, const std::string& path)>& make,
                   const ItemProgress& progress);

 private:
  void check_shard_names(const std::string& manifest) const;
  void finish(const std::vector<std::string>& record_paths);

  ShardJob job_;
  FileLock lock_;
  std::string key_;
  std::string work_folder_;
  bool already_done_ = false;
  int64_t shards_reused_ = 0;
  Manifest manifest_;
};

}  // namespace bertha
