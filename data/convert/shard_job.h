#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/convert/sequence_files.h"
#include "data/files/for_each_parallel.h"
#include "data/format/manifest.h"
#include "data/format/output_folder.h"

namespace bertha {

/// The data set that a conversion or a packing reads, and how it may go about it.
struct SourceOptions {
  std::string path;  // folder of shards or TFRecord files, or one file
  SampleLimits limits;
  int64_t max_seqs = 0;  // maximum number of sequences, the first ones; 0 = all
  MissingFiles missing = MissingFiles::kRefuse;
  int64_t num_threads = 0;                  // 0: one per core
  int64_t memory_bytes = int64_t{1} << 30;  // for what goes to another order, over all threads
};

/// The source's files, looked into.
SequenceFiles inspect_source(const SourceOptions& options, const WorkProgress& progress);

/// A folder of shards to write, such that a stopped run can be resumed.
struct ShardJob {
  std::string output_dir;
  std::vector<std::string> names;  // names of the shards
  Manifest manifest;               // all but the shards; its options decide them
  int64_t num_threads = 0;
};

/// The result of a job.
struct JobResult {
  Manifest manifest;
  bool already_done = false;  // by an earlier run
  int64_t shards_reused = 0;
};

/// The progress of a job. While it runs, `output_dir`/work contains its key, the spill files and a
/// record of every finished shard; at the end it writes manifest.json and checksums.chk and removes
/// work.
class JobFolder {
 public:
  /// Errors    Error(kData) if the folder contains something else: a finished data set, the work of
  ///           another job, or a folder `work` or shards that were not written by a job.
  explicit JobFolder(const ShardJob& job);

  /// Complete after make_shards(), or from the start if an earlier run has finished it all.
  const JobResult& result() const { return result_; }
  std::string work_path(const std::string& name) const;

  /// Writes the missing shards, each with make(shard, path), reads it back for its record, and ends
  /// the job.
  void make_shards(const std::function<void(int64_t shard, const std::string& path)>& make,
                   const ItemProgress& progress);

 private:
  void check_shard_names(const std::string& manifest) const;
  void finish(const std::vector<std::string>& record_paths);

  ShardJob job_;
  FileLock lock_;
  std::string key_;
  std::string work_folder_;
  JobResult result_;
};

/// The job of writing these files again. Its options are what of the source decides the outcome:
/// names and sizes of the files, limits, number of sequences; its sources are the texts that the
/// source's own manifest names, if it has one.
ShardJob job_of_source(const SourceOptions& options, const SequenceFiles& files,
                       const std::string& output_dir, std::vector<std::string> names);

/// Compares the files with the source's own manifest, if it has one: a damaged token would go into
/// the outcome, whose manifest then vouches for it.
///
/// Errors    Error(kData) naming the file that differs.
void check_source(const SourceOptions& options, const SequenceFiles& files,
                  const WorkProgress& progress);

/// Error(kUsage) when the output folder is the source itself.
void refuse_same_folder(const SourceOptions& options, const std::string& output_dir);

}  // namespace bertha
