#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/convert/sequence_files.h"
#include "data/convert/shard_job.h"
#include "data/files/for_each_parallel.h"

namespace bertha {

/// The data set that a conversion or a packing reads, and how it may go about it.
struct SourceOptions {
  std::string path;  // folder of shards or TFRecord files, or one file
  SampleLimits limits;
  int64_t max_seqs = 0;  // only the first so many sequences; 0 = all
  MissingFiles missing = MissingFiles::kRefuse;
  int64_t num_threads = 0;                  // 0: one per core
  int64_t memory_bytes = int64_t{1} << 30;  // for what goes to another order, over all threads
};

/// The source's files, looked into.
SequenceFiles inspect_source(const SourceOptions& options, const WorkProgress& progress);

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

/// Shards named as the published ones are, `count` of them.
std::vector<std::string> numbered_names(int64_t count);

}  // namespace bertha
