#pragma once

#include <vector>

#include "harness/model/arena.h"
#include "harness/model/dims.h"
#include "harness/model/encoder_gemms.h"

namespace bertha {

/// What fp8 GEMMs keep on the device from step to step, for all layers: matrix 4 l + g is that of
/// GEMM g (EncoderGemm) in layer l.
///
/// Scales of inputs and gradients are those of the maxima of the step before, over all ranks. A
/// run's first step has none: it goes through its first micro-batch in io to find them. Weights
/// take scales from themselves whenever they have changed.
struct Fp8State {
  Fp8Scales inputs;     // [4 L]
  Fp8Scales gradients;  // [4 L]  behind the inputs in memory, so that one view holds both maxima
  Fp8Scales weights;    // [4 L]
  std::vector<std::array<Fp8Weight, kEncoderGemms>> weight_copies;  // of each layer
  View unused_amax;                                                 // f32 [1]
  View unused_count;                                                // i64 [1]

  /// i32 [8 L]: the maxima of inputs and gradients as integers, which order as their floats do.
  View maxima() const;
  /// f32 [8 L] and [8 L, 4]: the scales of inputs and gradients, and their inverses.
  View scales() const;
  View inverse_scales() const;
};

/// Elements of inputs and gradients that a token's fp8 GEMMs round.
int64_t quantized_per_token(const Dims& dims);

Fp8State take_fp8_state(Arena& arena, const Dims& dims);

}  // namespace bertha
