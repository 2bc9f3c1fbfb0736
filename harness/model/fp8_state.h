#pragma once

#include <vector>

#include "harness/model/arena.h"
#include "harness/model/dims.h"
#include "harness/model/encoder_gemms.h"

namespace bertha {

/// State of fp8 GEMMs on the device between steps, for all layers: matrix 4 l + g belongs to GEMM g
/// (EncoderGemm) in layer l.
///
/// All scales follow from the maxima of the previous step, over all ranks. A run's first step has
/// no scales: it runs its first micro-batch in io to find them.
struct Fp8State {
  Fp8Scales scales;  // [12 L]: for inputs, gradients and weights, 4 L each
  std::vector<std::array<Fp8Weight, kEncoderGemms>> weight_copies;  // by layer
  View unused_amax;                                                 // f32 [1]
  View unused_count;                                                // i64 [1]

  Fp8Scales inputs() const { return third(0); }     // [4 L]
  Fp8Scales gradients() const { return third(1); }  // [4 L]
  Fp8Scales weights() const { return third(2); }    // [4 L]
  /// i32 [12 L]: the maxima as integers, which have the same order as the floats.
  View maxima() const;

 private:
  Fp8Scales third(int64_t i) const {
    const int64_t count = scales.amax.extent(0) / 3;
    return scales.rows(i * count, count);
  }
};

/// Number of tensors with a scale: inputs, weights and gradients of each GEMM in each layer.
constexpr int64_t fp8_scale_count(int64_t layers) {
  return 3 * static_cast<int64_t>(kEncoderGemms) * layers;
}

/// Number of elements of inputs and gradients that fp8 GEMMs round per token.
int64_t quantized_per_token(const Dims& dims);

Fp8State allocate_fp8_state(Arena& arena, const Dims& dims);

}  // namespace bertha
