#include "harness/model/dims.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {

namespace {

/// A mask width that all attention kernels support: a multiple of 128, or all positions.
int64_t mask_width(int64_t positions, int64_t seq_tokens) {
  const int64_t of_positions = round_up(positions, 32);
  return seq_tokens == 0 ? of_positions : std::min(of_positions, round_up(seq_tokens, 128));
}

}  // namespace

Dims make_dims(const ModelConfig& config, int64_t seq_tokens) {
  if (config.hidden % config.heads != 0) {
    fail(ExitCode::kUsage, "model.heads is ", config.heads, ", which does not divide model.hidden ",
         config.hidden, "; choose a number of heads that does.");
  }
  return Dims{
      .L = config.layers,
      .H = config.hidden,
      .A = config.heads,
      .D = config.hidden / config.heads,
      .F = config.feed_forward,
      .C = config.vocab_size,
      .V = round_up(config.vocab_size, 8),
      .P = config.max_positions,
      .S = mask_width(config.max_positions, seq_tokens),
      .G = config.segment_types,
  };
}

}  // namespace bertha
