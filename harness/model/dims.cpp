#include "harness/model/dims.h"

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {

Dims make_dims(const ModelConfig& config) {
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
      .S = round_up(config.max_positions, 32),
      .G = config.segment_types,
  };
}

}  // namespace bertha
