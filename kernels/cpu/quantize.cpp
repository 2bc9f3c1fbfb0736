#include "kernels/ops/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/base/fp8.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/require_f32.h"
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

template <class Q>
void quantize(const Quantize& args) {
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  const float* x = args.x.as<float>();
  Q* q = args.q.has_data() ? args.q.as<Q>() : nullptr;
  Q* transposed = args.transposed.has_data() ? args.transposed.as<Q>() : nullptr;
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
      if (row >= args.live_rows) continue;
      most = std::max(most, magnitude_bits(value));
      saturated += std::fabs(scaled) > Q::kMax ? 1 : 0;
    }
  }
  args.amax.as<float>()[0] = std::bit_cast<float>(most);
  if (has_output) args.saturated.as<int64_t>()[0] += saturated;
}

}  // namespace

template <>
void run_cpu(WorkerPool&, const Quantize& args) {
  if (args.x.extent(0) == 0) return;
  require_f32(Quantize::kName, "x", args.x);
  const DType dtype = args.q.has_data() ? args.q.dtype : args.transposed.dtype;
  dtype == DType::kE4M3 ? quantize<Fp8E4M3>(args) : quantize<Fp8E5M2>(args);
}

template <>
void run_cpu(WorkerPool&, const UpdateScales& args) {
  float* amax = args.amax.as<float>();
  for (int64_t i = 0; i < args.amax.extent(0); ++i) {
    if (gives_scale(amax[i])) {
      const int exponent = scale_exponent(amax[i], args.format);
      args.scale.as<float>()[i] = std::ldexp(1.0f, exponent);
      args.inverse_scale.as<float>()[i] = std::ldexp(1.0f, -exponent);
    } else if (amax[i] != 0.0f && args.sum_of_squares.has_data()) {
      args.sum_of_squares.as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
    }
    amax[i] = 0.0f;
  }
}

}  // namespace bertha
