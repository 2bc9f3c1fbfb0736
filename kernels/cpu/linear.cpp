#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gelu_erf.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/require_f32.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops/linear.h"

namespace bertha {
namespace {

constexpr int64_t kBlockElements = 16384;

void add_bias(const float* bias, int64_t columns, float* row) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) row[i] += bias[i];
}

void activate(Activation activation, const float* z, int64_t count, float* y) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kGeluTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[i] = gelu(z[i]);
      return;
    case Activation::kTanh:  // the pooler only: a row per sequence
      for (int64_t i = 0; i < count; ++i) y[i] = std::tanh(z[i]);
      return;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; ++i) y[i] = gelu_erf(z[i]);
      return;
  }
}

/// dx = dy * activation'(saved); dx may be dy.
void differentiate(Activation activation, const float* dy, const float* saved, int64_t count,
                   float* dx) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kGeluTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_derivative(saved[i]);
      return;
    case Activation::kTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (1.0f - saved[i] * saved[i]);
      return;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_erf_derivative(saved[i]);
      return;
  }
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const LinearFwd& args) {
  require_f32("linear_fwd", "x", args.x);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  float* y = args.y.as<float>();
  // The value before the activation goes where it is wanted; the activation then reads it there.
  float* z = keeps_pre_activation(args.activation) ? args.pre_activation.as<float>() : y;
  const float* bias = args.bias.has_data() ? args.bias.as<float>() : nullptr;
  const GemmArgs gemm{.transpose_b = Transpose::kYes,
                      .m = args.x.extent(0),
                      .n = outputs,
                      .k = inputs,
                      .a = args.x.as<float>(),
                      .a_stride = inputs,
                      .b = args.weight.as<float>(),
                      .b_stride = inputs,
                      .c = z,
                      .c_stride = outputs};
  run_gemm(pool, gemm, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * outputs;
      if (bias != nullptr) add_bias(bias, outputs, z + at);
      activate(args.activation, z + at, outputs, y + at);
    }
  });
}

template <>
void run_cpu(WorkerPool& pool, const LinearBwdData& args) {
  require_f32("linear_bwd_data", "dy", args.dy);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.weight.extent(1);
  float* dx = args.dx.as<float>();
  const GemmArgs gemm{.m = args.dy.extent(0),
                      .n = inputs,
                      .k = outputs,
                      .a = args.dy.as<float>(),
                      .a_stride = outputs,
                      .b = args.weight.as<float>(),
                      .b_stride = inputs,
                      .keep = args.accumulate == Accumulate::kYes ? 1.0f : 0.0f,
                      .c = dx,
                      .c_stride = inputs};
  run_gemm(pool, gemm, [&](int64_t begin, int64_t end) {
    if (args.activation == Activation::kNone) return;
    const int64_t at = begin * inputs;
    differentiate(args.activation, dx + at, args.saved.as<float>() + at, (end - begin) * inputs,
                  dx + at);
  });
  if (args.dbias_below.has_data()) {
    sum_columns(pool, args.dx, args.accumulate_dbias, args.dbias_below);
  }
}

template <>
void run_cpu(WorkerPool& pool, const LinearBwdWeight& args) {
  require_f32("linear_bwd_weight", "dy", args.dy);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.x.extent(1);
  run_gemm(pool,
           {.transpose_a = Transpose::kYes,
            .m = outputs,
            .n = inputs,
            .k = args.dy.extent(0),
            .a = args.dy.as<float>(),
            .a_stride = outputs,
            .b = args.x.as<float>(),
            .b_stride = inputs,
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
  pool.for_range(args.dy.elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    differentiate(args.activation, dy + begin, saved + begin, end - begin, dx + begin);
  });
}

}  // namespace bertha
