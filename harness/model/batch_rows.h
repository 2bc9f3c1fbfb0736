#pragma once

#include <cstdint>

namespace bertha {

/// Numbers of rows: those of the largest micro-batch, for which every activation buffer is
/// allocated once (a capacity), or those of the current micro-batch.
struct BatchRows {
  int64_t tokens = 0;  // T
  int64_t seqs = 0;    // B
  int64_t masked = 0;  // M
  // Set only by padded().
  int64_t needed = 0;  // K  rows that the heads read: masked tokens [M], then first tokens [B]
  int64_t last = 0;    // R  rows of the last layer after its attention: T, or K
  // Tokens in the longest sequence of a capacity; 0 = the model's number of positions.
  int64_t seq_tokens = 0;
};

/// `rows` as stored in buffers: T, M and K rounded up with padded_rows, the device's function.
template <class PaddedRows>
BatchRows padded(const BatchRows& rows, PaddedRows padded_rows) {
  const int64_t masked = padded_rows(rows.masked);
  return {.tokens = padded_rows(rows.tokens),
          .seqs = rows.seqs,
          .masked = masked,
          .needed = padded_rows(masked + rows.seqs),
          .last = padded_rows(rows.tokens),
          .seq_tokens = rows.seq_tokens};
}

}  // namespace bertha
