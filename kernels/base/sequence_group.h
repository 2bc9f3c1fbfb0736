#pragma once

#include <cstdint>

namespace bertha {

/// Consecutive sequences of one batch in the same length bucket, for one specialized attention
/// kernel. In host memory.
struct SequenceGroup {
  int64_t first_seq = 0;
  int64_t num_seqs = 0;
  int64_t first_token = 0;
  int64_t num_tokens = 0;
  int64_t longest_seq_tokens = 0;
  int64_t bucket_tokens = 0;  // 128, 256, 384, 512, ...
};

}  // namespace bertha
