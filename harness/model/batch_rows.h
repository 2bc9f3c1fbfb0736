#pragma once

#include <cstdint>

namespace bertha {

/// Numbers of rows: of the largest micro-batch that fits, for which every activation buffer is
/// allocated once (a capacity), or of the one in work.
struct BatchRows {
  int64_t tokens = 0;  // T; Bert rounds a capacity up to device.padded_rows()
  int64_t seqs = 0;    // B
  int64_t masked = 0;  // M; likewise
  // Of a capacity: tokens of the longest sequence; 0 = as many as the model has positions.
  int64_t seq_tokens = 0;
};

}  // namespace bertha
