#include <vector>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/fp8.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/gemm.h"
#include "kernels/ops/linear.h"

namespace bertha {
namespace {

void add_bias(const float* bias, int64_t columns, float* row) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) row[i] += bias[i];
}

template <class Q>
std::vector<float> widened(const View& matrix) {
  const Q* q = matrix.as<Q>();
  std::vector<float> values(static_cast<size_t>(matrix.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_float(q[i]);
  return values;
}

/// A matrix that enters a GEMM as f32. One of fp8 is widened without its scale, which multiplies
/// the sums, as on a GPU.
class Operand {
 public:
  Operand(const View& matrix, const View& inverse_scale)
      : data_(static_cast<const float*>(matrix.data)) {
    if (!is_fp8(matrix.dtype)) return;
    widened_ = matrix.dtype == DType::kE4M3 ? widened<Fp8E4M3>(matrix) : widened<Fp8E5M2>(matrix);
    data_ = widened_.data();
    scale_ = inverse_scale.as<float>()[0];
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  const float* data() const { return data_; }
  float scale() const { return scale_; }

 private:
  std::vector<float> widened_;
  const float* data_ = nullptr;
  float scale_ = 1.0f;
};

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const LinearFwd& args) {
  require_f32("linear_fwd", "y", args.y);
  const Operand x(args.x, args.x_inverse_scale);
  const Operand weight(args.weight, args.weight_inverse_scale);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  float* y = args.y.as<float>();
  // The value before the activation is written to its output, from which the activation reads it.
  float* z = args.pre_activation.has_data() ? args.pre_activation.as<float>() : y;
  auto* const derivative = static_cast<uint8_t*>(args.derivative.data);
  const float* bias = args.bias.has_data() ? args.bias.as<float>() : nullptr;
  const GemmArgs gemm{.transpose_b = Transpose::kYes,
                      .m = args.x.extent(0),
                      .n = outputs,
                      .k = inputs,
                      .scale = x.scale() * weight.scale(),
                      .a = x.data(),
                      .a_stride = inputs,
                      .b = weight.data(),
                      .b_stride = inputs,
                      .c = z,
                      .c_stride = outputs};
  run_gemm(pool, gemm, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * outputs;
      if (bias != nullptr) add_bias(bias, outputs, z + at);
      if (derivative != nullptr) {
        store_derivative(args.activation, z + at, outputs, derivative + at);
      }
      activate(args.activation, z + at, outputs, y + at);
    }
  });
}

template <>
void run_cpu(WorkerPool& pool, const LinearBwdData& args) {
  require_f32("linear_bwd_data", "dx", args.dx);
  const Operand dy(args.dy, args.dy_inverse_scale);
  const Operand weight(args.weight, args.weight_inverse_scale);
  const bool fp8 = is_fp8(args.dy.dtype);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.dx.extent(1);
  float* dx = args.dx.as<float>();
  const GemmArgs gemm{.transpose_b = fp8 ? Transpose::kYes : Transpose::kNo,
                      .m = args.dy.extent(0),
                      .n = inputs,
                      .k = outputs,
                      .scale = dy.scale() * weight.scale(),
                      .a = dy.data(),
                      .a_stride = outputs,
                      .b = weight.data(),
                      .b_stride = fp8 ? outputs : inputs,
                      .keep = args.accumulate == Accumulate::kYes ? 1.0f : 0.0f,
                      .c = dx,
                      .c_stride = inputs};
  run_gemm(pool, gemm, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * inputs;
    const int64_t count = (end - begin) * inputs;
    if (args.derivative.has_data()) {
      const auto* bytes = static_cast<const uint8_t*>(args.derivative.data);
      multiply_by_derivative(dx + at, bytes + at, count, dx + at);
    } else if (args.activation != Activation::kNone) {
      differentiate(args.activation, dx + at, args.saved.as<float>() + at, count, dx + at);
    }
  });
  if (args.dbias_below.has_data()) {
    sum_columns(pool, args.dx, args.accumulate_dbias, args.dbias_below);
  }
}

template <>
void run_cpu(WorkerPool& pool, const LinearBwdWeight& args) {
  require_f32("linear_bwd_weight", "dweight", args.dweight);
  const Operand dy(args.dy, args.dy_inverse_scale);
  const Operand x(args.x, args.x_inverse_scale);
  const bool fp8 = is_fp8(args.dy.dtype);
  const int64_t rows = args.dy.extent(fp8 ? 1 : 0);
  const int64_t outputs = args.dweight.extent(0);
  const int64_t inputs = args.dweight.extent(1);
  run_gemm(pool,
           {.transpose_a = fp8 ? Transpose::kNo : Transpose::kYes,
            .transpose_b = fp8 ? Transpose::kYes : Transpose::kNo,
            .m = outputs,
            .n = inputs,
            .k = rows,
            .scale = dy.scale() * x.scale(),
            .a = dy.data(),
            .a_stride = fp8 ? rows : outputs,
            .b = x.data(),
            .b_stride = fp8 ? rows : inputs,
            .keep = args.accumulate == Accumulate::kYes ? 1.0f : 0.0f,
            .c = args.dweight.as<float>(),
            .c_stride = inputs},
           [](int64_t, int64_t) {});
  if (args.dbias.has_data()) sum_columns(pool, args.dy, args.accumulate, args.dbias);
}

template <>
void run_cpu(WorkerPool& pool, const ActivationBwd& args) {
  require_f32("activation_bwd", "dy", args.dy);
  const float* dy = args.dy.as<float>();
  const float* saved = args.saved.as<float>();
  float* dx = args.dx.as<float>();
  pool.for_range(args.dy.elements(), kActivationBlock, [&](int64_t begin, int64_t end) {
    differentiate(args.activation, dy + begin, saved + begin, end - begin, dx + begin);
  });
}

}  // namespace bertha
