#include "harness/model/fp8_state.h"

#include <cmath>
#include <iterator>

#include "kernels/base/error.h"
#include "kernels/ops.h"
#include "kernels/ops/quantize.h"

namespace bertha {

View Fp8State::maxima() const { return {scales.amax.data, DType::kI32, {scales.amax.extent(0)}}; }

std::string fp8_gemms(const Dims& dims) {
  return concat(
      "qkv forward+dgrad+wgrad, projection forward+dgrad+wgrad, ff_in forward+dgrad+wgrad, "
      "ff_out forward+dgrad+wgrad",
      has_fp8_decoder(dims) ? ", decoder forward+dgrad+wgrad" : "");
}

int64_t quantized_per_token(const Dims& dims) {
  const int64_t inputs = 3 * dims.H + dims.F;
  const int64_t gradients = 5 * dims.H + dims.F;
  return dims.L * (inputs + gradients);
}

int64_t quantized_per_masked_token(const Dims& dims) {
  return has_fp8_decoder(dims) ? dims.H + dims.V : 0;
}

Fp8State allocate_fp8_state(Arena& arena, const Dims& dims) {
  const int64_t count = fp8_scale_count(dims.L);
  Fp8State state{.scales = {.scale = arena.take(DType::kF32, {count}),
                            .inverse_scale = arena.take(DType::kF32, {count, kInverseScaleCopies}),
                            .amax = arena.take(DType::kF32, {count})},
                 .weight_copies = {},
                 .decoder_copies = {},
                 .unused_amax = arena.take(DType::kF32, {1}),
                 .unused_count = arena.take(DType::kI64, {1})};
  const auto allocate_weight = [&](int64_t outputs, int64_t inputs) {
    return Fp8Weight{.q = arena.take(DType::kE4M3, {outputs, inputs}),
                     .transposed = arena.take(DType::kE4M3, {inputs, outputs})};
  };
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    state.weight_copies.push_back({allocate_weight(3 * dims.H, dims.H),
                                   allocate_weight(dims.H, dims.H), allocate_weight(dims.F, dims.H),
                                   allocate_weight(dims.H, dims.F)});
  }
  if (has_fp8_decoder(dims)) state.decoder_copies = allocate_weight(dims.V, dims.H);
  return state;
}

void update_scales(Ops& ops, const Fp8State& state, const View& sum_of_squares) {
  const auto update = [&](const Fp8Scales& scales, DType format) {
    ops.run(UpdateScales{.amax = scales.amax,
                         .scale = scales.scale,
                         .inverse_scale = scales.inverse_scale,
                         .sum_of_squares = sum_of_squares,
                         .format = format});
  };
  update(state.inputs(), DType::kE4M3);
  update(state.gradients(), DType::kE5M2);
  update(state.weights(), DType::kE4M3);
}

void store_scales(Device& device, Stream& stream, const Fp8Scales& scales,
                  const std::vector<int>& exponents) {
  const int64_t count = scales.scale.elements();
  const auto store = [&](const View& to, int sign) {
    const int64_t copies = to.elements() / count;
    std::vector<float> values;
    for (const int exponent : exponents) {
      values.insert(values.end(), static_cast<size_t>(copies), std::ldexp(1.0f, sign * exponent));
    }
    values.resize(static_cast<size_t>(count * copies), 1.0f);
    device.copy(stream, to.data, values.data(), to.bytes());
    stream.wait_on_host();
  };
  store(scales.scale, 1);
  store(scales.inverse_scale, -1);
}

void add_decoder(std::vector<int>& exponents) {
  const int64_t third = std::ssize(exponents) / 3;
  for (const int64_t end : {3 * third, 2 * third, third}) {
    exponents.insert(exponents.begin() + end, 0);
  }
}

}  // namespace bertha
