#include "kernels/ops/linear_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/fp8.h"
#include "kernels/cpu/activations.h"
#include "kernels/ops/scale_rules.h"

namespace bertha {
namespace {

/// |value| as bits that order as the values do, with one NaN above infinity.
uint32_t magnitude_bits(float value) {
  constexpr uint32_t kNaN = 0x7FC00000;
  return std::isnan(value) ? kNaN : std::bit_cast<uint32_t>(std::fabs(value));
}

Fp8E4M3 to_fp8(Fp8E4M3, float value) { return to_e4m3(static_cast<double>(value)); }
Fp8E5M2 to_fp8(Fp8E5M2, float value) { return to_e5m2(static_cast<double>(value)); }

/// f(x) if it differs from x.
std::vector<float> function_of(WorkerPool& pool, const Quantize& args) {
  const bool is_gelu = args.activation != Activation::kNone;
  if (!is_gelu && !args.derivative.has_data()) return {};
  std::vector<float> values(static_cast<size_t>(args.x.elements()));
  const float* x = args.x.as<float>();
  uint8_t* const derivative = static_cast<uint8_t*>(args.derivative.data);
  pool.for_range(args.x.elements(), kActivationBlock, [&](int64_t begin, int64_t end) {
    float* to = values.data() + begin;
    if (!is_gelu) {
      return multiply_by_derivative(x + begin, derivative + begin, end - begin, to);
    }
    activate(args.activation, x + begin, end - begin, to);
    if (derivative != nullptr) {
      store_derivative(args.activation, x + begin, end - begin, derivative + begin);
    }
  });
  return values;
}

/// Transposes a matrix of bytes.
void transpose(const View& x, const View& transposed) {
  const int64_t rows = x.extent(0);
  const int64_t columns = x.extent(1);
  const auto* from = static_cast<const uint8_t*>(x.data);
  auto* to = static_cast<uint8_t*>(transposed.data);
  for (int64_t i = 0; i < rows * columns; ++i) to[i % columns * rows + i / columns] = from[i];
}

template <class Q>
void quantize(const Quantize& args, const float* x) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  Q* q = args.q.has_data() ? args.q.as<Q>() : nullptr;
  Q* transposed = args.transposed.has_data() ? args.transposed.as<Q>() : nullptr;
  const int64_t live_rows =
      args.live_rows.has_data() ? args.live_rows.as<int32_t>()[0] : args.x.extent(0);
  const bool has_output = q != nullptr || transposed != nullptr;
  const float scale = has_output ? args.scale.as<float>()[0] : 0.0f;
  uint32_t most = magnitude_bits(args.amax.as<float>()[0]);
  int64_t saturated = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float value = x[row * columns + column];
      const float scaled = value * scale;
      const Q rounded = to_fp8(Q{}, scaled);
      if (q != nullptr) q[row * columns + column] = rounded;
      if (transposed != nullptr) transposed[column * rows + row] = rounded;
      if (row >= live_rows) continue;
      most = std::max(most, magnitude_bits(value));
      saturated += std::fabs(scaled) > Q::kMax ? 1 : 0;
    }
  }
  args.amax.as<float>()[0] = std::bit_cast<float>(most);
  if (has_output) args.saturated.as<int64_t>()[0] += saturated;
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const Quantize& args) {
  if (is_fp8(args.x.dtype)) return transpose(args.x, args.transposed);
  require_f32(Quantize::kName, "x", args.x);
  std::vector<float> values = function_of(pool, args);
  const View of_x = values.empty()
                        ? args.x
                        : View(values.data(), DType::kF32, {args.x.extent(0), args.x.extent(1)});
  if (args.column_sums.has_data()) {
    sum_columns(pool, of_x, args.accumulate_sums, args.column_sums);
  }
  if (args.x.extent(0) == 0) return;
  const DType dtype = args.q.has_data() ? args.q.dtype : args.transposed.dtype;
  dtype == DType::kE4M3 ? quantize<Fp8E4M3>(args, of_x.as<float>())
                        : quantize<Fp8E5M2>(args, of_x.as<float>());
}

template <>
void run_cpu(WorkerPool& pool, const QuantizeWeights& args) {
  for (const Quantize& weight : args.weights) run_cpu(pool, weight);
}

template <>
void run_cpu(WorkerPool& pool, const LinearFwdQuantize& args) {
  run_cpu(pool, args.linear);
  run_cpu(pool, args.quantize);
}

template <>
void run_cpu(WorkerPool& pool, const LinearBwdDataQuantize& args) {
  run_cpu(pool, args.linear);
  run_cpu(pool, args.quantize);
}

template <>
void run_cpu(WorkerPool&, const UpdateScales& args) {
  float* amax = args.amax.as<float>();
  for (int64_t i = 0; i < args.amax.extent(0); ++i) {
    if (gives_scale(amax[i])) {
      const int exponent = scale_exponent(amax[i], args.format);
      args.scale.as<float>()[i] = std::ldexp(1.0f, exponent);
      std::fill_n(args.inverse_scale.as<float>() + i * kInverseScaleCopies, kInverseScaleCopies,
                  std::ldexp(1.0f, -exponent));
    } else if (amax[i] != 0.0f && args.sum_of_squares.has_data()) {
      args.sum_of_squares.as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
    }
    amax[i] = 0.0f;
  }
}

}  // namespace bertha
