#include "harness/model/dims.h"

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct Bound {
  const char* key;
  int64_t value;
  int64_t lowest;
  int64_t highest;
};

// The upper bounds are those of the keys. Below the keys' lower ones the formulas still hold.
void check_bound(const Bound& bound) {
  if (bound.value < bound.lowest || bound.value > bound.highest) {
    fail(ExitCode::kUsage, bound.key, " is ", bound.value, ", want ", bound.lowest, " to ",
         bound.highest, "; correct it in the config or with --set ", bound.key, "=N.");
  }
}

}  // namespace

Dims make_dims(const ModelConfig& config) {
  const Bound bounds[] = {
      {"model.layers", config.layers, 1, 256},
      {"model.hidden", config.hidden, 1, 65536},
      {"model.heads", config.heads, 1, 1024},
      {"model.feed_forward", config.feed_forward, 1, 262144},
      {"model.vocab_size", config.vocab_size, 1, 32768},
      {"model.max_positions", config.max_positions, 1, 32767},
      {"model.segment_types", config.segment_types, 2, 127},
  };
  for (const Bound& bound : bounds) check_bound(bound);
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
