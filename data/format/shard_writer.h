#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/new_file.h"
#include "data/format/hdf5_output.h"
#include "data/format/sample.h"
#include "data/format/shard_layout.h"

namespace bertha {

/// What the published packer puts into a pack at most.
inline constexpr int64_t kPublishedSeqsPerPack = 3;

/// Makes one shard. Its bytes stay in memory until finish(), which writes them to `path` + ".tmp"
/// and renames; an earlier file of that name stays until then, and when anything fails. Dropping
/// the writer before finish() removes the temporary file. The order of the samples stays.
///
/// With kPacked a sample joins the open pack while that holds fewer than `max_seqs_per_pack`
/// sequences and no more than max_seq_tokens tokens; otherwise, and after end_pack(), it opens a
/// new one.
///
/// Errors    Error(kData) with the path and the reason (a wrong sample, disk full, no permission).
class ShardWriter {
 public:
  ShardWriter(const std::string& path, ShardLayout layout, const SampleLimits& limits,
              int64_t max_seqs_per_pack = kPublishedSeqsPerPack);

  void append(const SampleView& sample);
  void end_pack();
  void finish();

 private:
  void flush();

  ShardLayout layout_;
  SampleLimits limits_;
  int64_t max_seqs_per_pack_;
  std::string path_;
  NewFile target_;  // made first: an unwritable folder is known before the work
  Hdf5Output file_;
  SampleSet block_;                       // samples not yet written, the open pack's last
  std::vector<int64_t> pack_offsets_{0};  // [packs + 1]  of the closed ones, in block_
  int64_t open_tokens_ = 0;               // of the open pack
  int64_t num_written_ = 0;               // samples
};

}  // namespace bertha
