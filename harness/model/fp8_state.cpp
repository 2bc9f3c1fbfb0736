#include "harness/model/fp8_state.h"
#include "kernels/ops/quantize.h"

namespace bertha {

View Fp8State::maxima() const { return {scales.amax.data, DType::kI32, {scales.amax.extent(0)}}; }

int64_t quantized_per_token(const Dims& dims) {
  const int64_t inputs = 3 * dims.H + dims.F;
  const int64_t gradients = 5 * dims.H + dims.F;
  return dims.L * (inputs + gradients);
}

Fp8State allocate_fp8_state(Arena& arena, const Dims& dims) {
  const int64_t count = fp8_scale_count(dims.L);
  Fp8State state{.scales = {.scale = arena.take(DType::kF32, {count}),
                            .inverse_scale = arena.take(DType::kF32, {count, kInverseScaleCopies}),
                            .amax = arena.take(DType::kF32, {count})},
                 .weight_copies = {},
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
  return state;
}

}  // namespace bertha
