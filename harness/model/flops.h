#pragma once

#include <cstdint>

#include "harness/model/dims.h"

namespace bertha {

/// The size of a step, summed over its sequences.
struct StepWork {
  int64_t num_tokens = 0;
  int64_t num_masked = 0;
  int64_t num_seqs = 0;
  int64_t squared_tokens = 0;  // sum of t * t over sequences of t tokens: attention
};

/// Model FLOPs of forward and backward, GEMMs only, 2 per multiply-add, backward twice forward:
/// 3 * (L * (tokens * (8 H^2 + 4 H F) + 4 H * squared_tokens)
///      + masked * (2 H^2 + 2 H V) + seqs * (2 H^2 + 4 H)).
/// The last layer is counted in full, although train.last_layer may compute only a part of it. A
/// double, because large models and batches exceed an int64.
double model_flops_per_step(const Dims& dims, const StepWork& work);

}  // namespace bertha
