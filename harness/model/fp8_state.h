#pragma once

#include <vector>

#include "harness/model/arena.h"
#include "harness/model/dims.h"
#include "harness/model/encoder_gemms.h"

namespace bertha {

/// What fp8 GEMMs keep on the device from step to step, for all layers: matrix 4 l + g belongs to
/// GEMM g (EncoderGemm) in layer l.
///
/// All scales follow from the maxima of the step before, over all ranks. A run's first step does
/// not have any: it goes through its first micro-batch in io to find them.
struct Fp8State {
  Fp8Scales scales;  // [12 L]: of inputs, gradients and weights, 4 L each
  std::vector<std::array<Fp8Weight, kEncoderGemms>> weight_copies;  // of each layer
  View unused_amax;                                                 // f32 [1]
  View unused_count;                                                // i64 [1]

  Fp8Scales inputs() const { return third(0); }     // [4 L]
  Fp8Scales gradients() const { return third(1); }  // [4 L]
  Fp8Scales weights() const { return third(2); }    // [4 L]
  /// i32 [12 L]: the maxima as integers, which order as their floats do.
  View maxima() const;

 private:
  Fp8Scales third(int64_t i) const {
    const int64_t count = scales.amax.extent(0) / 3;
    return scales.rows(i * count, count);
  }
};

/// How many tensors have a scale: inputs, weights and gradients of each GEMM of each layer.
constexpr int64_t fp8_scale_count(int64_t layers) {
  return 3 * static_cast<int64_t>(kEncoderGemms) * layers;
}

/// Elements of inputs and gradients that a token's fp8 GEMMs round.
int64_t quantized_per_token(const Dims& dims);

Fp8State take_fp8_state(Arena& arena, const Dims& dims);

}  // namespace bertha
