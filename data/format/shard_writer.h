#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/new_file.h"
#include "data/format/hdf5_output.h"
#include "data/format/sample.h"
#include "data/format/shard_layout.h"

namespace bertha {

/// The published packer's maximum number of sequences per pack.
inline constexpr int64_t kPublishedSeqsPerPack = 3;

/// Writes one shard. Its bytes are kept in memory until finish(), which writes them to `path` +
/// ".tmp" and renames; an earlier file of that name is kept until then, and if anything fails.
/// Destroying the writer before finish() removes the temporary file. The samples keep their order.
///
/// With kPacked a sample is added to the open pack while that has fewer than `max_seqs_per_pack`
/// sequences and at most max_seq_tokens tokens; otherwise, and after end_pack(), it opens a new
/// pack.
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
  NewFile target_;  // created first, so that an unwritable folder fails before the work
  Hdf5Output file_;
  SampleSet block_;                       // samples not yet written, the open pack's last
  std::vector<int64_t> pack_offsets_{0};  // [packs + 1]  of the closed ones, in block_
  int64_t open_tokens_ = 0;               // tokens of the open pack
  int64_t num_written_ = 0;               // samples
};

}  // namespace bertha
