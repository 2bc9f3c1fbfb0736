#pragma once

#include <cstdint>

namespace bertha {

/// The time of one group of sequences on its lane, a stream, in one attention. Events order work,
/// not thread blocks: from begin_us on the group's kernels may run, beside those of other lanes,
/// and at end_us the last of them has finished.
struct LaneSpan {
  int lane = 0;
  int64_t num_seqs = 0;
  int64_t longest_seq_tokens = 0;
  double begin_us = 0;  // since the attention began
  double end_us = 0;
};

}  // namespace bertha
