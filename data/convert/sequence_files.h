#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/sample.h"
#include "data/format/shard_names.h"

namespace bertha {

enum class SequenceFileKind : uint8_t { kShard, kTfRecord };

/// One file of sequences, of any layout that is read.
struct SequenceFile {
  std::string path;
  SequenceFileKind kind = SequenceFileKind::kShard;
  int64_t bytes = 0;
  int64_t num_seqs = 0;
  int64_t first_seq = 0;  // in the numbering of all files
  // Packed shard: the first sequence of each row, counted in the file, and the end.
  // TFRecord: the offset in bytes of every 1,024th record.
  std::vector<int64_t> marks = {};
};

/// A data set in any published form, its sequences numbered in file order.
struct SequenceFiles {
  std::vector<SequenceFile> files;
  int64_t num_seqs = 0;
};

/// The files of a folder, sorted by name: shards (with names as in list_shards()) and TFRecord
/// files, whose name is part-N-of-S or ends in .tfrecord or .tfrecords; or the file itself.
///
/// Errors    Error(kData) if there is none, if a folder contains both TFRecord and HDF5 files, or
///           if numbered files are missing (the error lists them) and that is not allowed.
std::vector<std::string> list_sequence_files(const std::string& path, MissingFiles missing);

/// Counts the sequences of the files, in parallel; this reads whole TFRecord files, but little of
/// shards. With most_seqs > 0, files after the one that reaches that number are left out.
///
/// Errors    Error(kData) naming the file.
SequenceFiles inspect_sequence_files(const std::vector<std::string>& paths, int64_t most_seqs,
                                     int64_t num_threads, const ItemProgress& progress);

/// Gives sequences [first, first + count) in order, some thousand in memory at a time. Ids are the
/// numbers.
///
/// Errors    Error(kData) naming the file, and row or record, dataset or feature, and value.
/// Threads   any.
void read_sequences(const SequenceFiles& files, int64_t first, int64_t count,
                    const SampleLimits& limits, const std::function<void(const SampleView&)>& take);

/// Tokens of every sequence, for 2 bytes each; of shards without reading them.
std::vector<uint16_t> read_token_counts(const SequenceFiles& files, const SampleLimits& limits,
                                        int64_t num_threads, const ItemProgress& progress);

}  // namespace bertha
