#pragma once

#include <string>
#include <vector>

#include "harness/model/arena.h"
#include "harness/model/dims.h"
#include "harness/model/encoder_gemms.h"
#include "kernels/base/device.h"

namespace bertha {

/// State of fp8 GEMMs on the device between steps: matrix 4 l + g belongs to GEMM g (EncoderGemm)
/// in layer l, and matrix 4 L to the decoder.
///
/// All scales follow from the maxima of the previous step, over all ranks. A run's first step has
/// no scales: it runs its first micro-batch in io to find them.
struct Fp8State {
  Fp8Scales scales;  // [12 L + 3]: for inputs, gradients and weights, 4 L + 1 each
  std::vector<std::array<Fp8Weight, kEncoderGemms>> weight_copies;  // by layer
  Fp8Weight decoder_copies;
  View unused_amax;   // f32 [1]
  View unused_count;  // i64 [1]

  Fp8Scales inputs() const { return third(0); }     // [4 L + 1]
  Fp8Scales gradients() const { return third(1); }  // [4 L + 1]
  Fp8Scales weights() const { return third(2); }    // [4 L + 1]
  /// i32 [12 L + 3]: the maxima as integers, which have the same order as the floats.
  View maxima() const;

 private:
  Fp8Scales third(int64_t i) const {
    const int64_t count = scales.amax.extent(0) / 3;
    return scales.rows(i * count, count);
  }
};

/// Number of tensors with a scale in the encoder, which is that in checkpoints of versions whose
/// decoder was not in fp8: inputs, weights and gradients of each GEMM in each layer.
constexpr int64_t fp8_encoder_scale_count(int64_t layers) {
  return 3 * static_cast<int64_t>(kEncoderGemms) * layers;
}
/// The same with the decoder, whether it is in fp8 or not.
constexpr int64_t fp8_scale_count(int64_t layers) { return fp8_encoder_scale_count(layers) + 3; }

/// Whether the decoder's GEMMs are in fp8, too: the library needs multiples of 16.
constexpr bool has_fp8_decoder(const Dims& dims) { return dims.V % 16 == 0; }

/// The GEMMs that train.precision fp8 runs in fp8: y = x w^T, dx = dy w and dw = dy^T x of each.
/// All other operations use io. Once there are scales, a step stores neither the result of the GELU
/// nor its gradient in io, and instead of the pre-activation only the derivative of the GELU.
std::string fp8_gemms(const Dims& dims);

/// Number of elements of inputs and gradients that fp8 GEMMs round per token in the encoder.
int64_t quantized_per_token(const Dims& dims);
/// The same per masked token in the decoder.
int64_t quantized_per_masked_token(const Dims& dims);

Fp8State allocate_fp8_state(Arena& arena, const Dims& dims);

/// Computes all scales from the maxima of this step, and clears these.
void update_scales(Ops& ops, const Fp8State& state, const View& sum_of_squares);

/// Stores 2^exponents as scales, or 1 if there are no exponents yet.
void store_scales(Device& device, Stream& stream, const Fp8Scales& scales,
                  const std::vector<int>& exponents);

/// Inserts an exponent of 0 for each scale of the decoder into the exponents of the encoder's.
void add_decoder(std::vector<int>& exponents);

}  // namespace bertha
