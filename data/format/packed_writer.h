#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/new_file.h"
#include "data/format/hdf5_file.h"
#include "data/format/sample.h"
#include "data/format/shard_file.h"

namespace bertha {

/// What the published packer puts into a pack at most.
inline constexpr int64_t kPublishedSeqsPerPack = 3;

/// Writes a shard of packs. A sample joins the open pack while that holds fewer than
/// `max_seqs_per_pack` sequences and no more than max_seq_tokens tokens; otherwise, and after
/// end_pack(), it opens a new one. The order of the samples stays.
///
/// Errors    as ShardWriter.
class PackedWriter final : public ShardWriter {
 public:
  PackedWriter(const std::string& path, const SampleLimits& limits, int64_t max_seqs_per_pack);

  void append(const SampleView& sample) override;
  void end_pack();
  void finish() override;

 private:
  void flush();

  SampleLimits limits_;
  int64_t max_seqs_per_pack_;
  std::string path_;
  NewFile target_;  // made first: an unwritable folder is known before the work
  Hdf5Output file_;
  SampleSet block_;                       // samples of the packs in hand, the open one last
  std::vector<int64_t> pack_offsets_{0};  // [packs + 1]  of the closed ones, in block_
  int64_t open_tokens_ = 0;
  int64_t num_written_ = 0;  // samples
};

}  // namespace bertha
