#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"

namespace bertha {

// Tiles of `rows` rows for the sequences of a batch, numbered without their lengths. A sequence has
// the tiles from its first one to the next sequence's first one: as many as its tokens need, or one
// more, because floor((begin + length) / rows) + 1 - floor(begin / rows) >= ceil(length / rows).

/// The first tile of sequence `seq`, whose first token is `begin`.
BERTHA_HOST_DEVICE constexpr int64_t first_tile_of_seq(int64_t seq, int64_t begin, int64_t rows) {
  return begin / rows + seq;
}

/// The number of tiles of all `seqs` sequences, which have at most `tokens` tokens.
constexpr int64_t tiles_of_seqs(int64_t seqs, int64_t tokens, int64_t rows) {
  return first_tile_of_seq(seqs, tokens, rows);
}

}  // namespace bertha
