#include "harness/model/fp8_state.h"

namespace bertha {
namespace {

constexpr auto kGemms = static_cast<int64_t>(kEncoderGemms);

View both(const View& inputs, DType dtype) { return {inputs.data, dtype, {2 * inputs.extent(0)}}; }

}  // namespace

View Fp8State::maxima() const { return both(inputs.amax, DType::kI32); }
View Fp8State::scales() const { return both(inputs.scale, DType::kF32); }
View Fp8State::inverse_scales() const {
  return {inputs.inverse_scale.data,
          DType::kF32,
          {2 * inputs.inverse_scale.extent(0), kInverseScaleCopies}};
}

int64_t quantized_per_token(const Dims& dims) {
  const int64_t inputs = 3 * dims.H + dims.F;
  const int64_t gradients = 5 * dims.H + dims.F;
  return dims.L * (inputs + gradients);
}

Fp8State take_fp8_state(Arena& arena, const Dims& dims) {
  const int64_t count = kGemms * dims.L;
  const Fp8Scales all{.scale = arena.take(DType::kF32, {3 * count}),
                      .inverse_scale = arena.take(DType::kF32, {3 * count, kInverseScaleCopies}),
                      .amax = arena.take(DType::kF32, {3 * count})};
  Fp8State state{.inputs = all.rows(0, count),
                 .gradients = all.rows(count, count),
                 .weights = all.rows(2 * count, count),
                 .weight_copies = {},
                 .unused_amax = arena.take(DType::kF32, {1}),
                 .unused_count = arena.take(DType::kI64, {1})};
  const auto take_weight = [&](int64_t outputs, int64_t inputs) {
    return Fp8Weight{.q = arena.take(DType::kE4M3, {outputs, inputs}),
                     .transposed = arena.take(DType::kE4M3, {inputs, outputs})};
  };
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    state.weight_copies.push_back({take_weight(3 * dims.H, dims.H), take_weight(dims.H, dims.H),
                                   take_weight(dims.F, dims.H), take_weight(dims.H, dims.F)});
  }
  return state;
}

}  // namespace bertha
