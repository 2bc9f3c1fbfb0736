#pragma once

#include <cstdint>

#include "harness/config/config.h"

namespace bertha {

/// The shape letters of the model, used everywhere.
struct Dims {
  int64_t L = 0;  // layers
  int64_t H = 0;  // hidden
  int64_t A = 0;  // attention heads
  int64_t D = 0;  // head size, H / A
  int64_t F = 0;  // feed-forward size
  int64_t C = 0;  // classes: vocabulary entries
  int64_t V = 0;  // vocabulary rows, C padded to a multiple of 8
  int64_t P = 0;  // positions: maximum sequence length
  int64_t S = 0;  // width of attention masks: a multiple of 32, at least the longest sequence
  int64_t G = 0;  // segment types
};

/// `seq_tokens`: tokens in the longest sequence; 0 = the number of positions.
///
/// Needs     numbers within the bounds of their keys.
/// Errors    Error(kUsage) if model.heads does not divide model.hidden.
Dims make_dims(const ModelConfig& config, int64_t seq_tokens = 0);

}  // namespace bertha
