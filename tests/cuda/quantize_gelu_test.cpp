#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/half.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/support/exact_gelu.h"
#include "tests/support/fp8_case.h"

namespace bertha::testing {
namespace {

constexpr int64_t kColumns = 240;
constexpr float kScale = 4.0f;

struct GeluCase {
  int64_t rows;
  Activation activation;  // kNone: the gradient, or a copy
  DType format;
  DType io = DType::kF32;
  Accumulate accumulate = Accumulate::kNo;
  bool is_copy = false;  // x, with its column sums

  bool is_gradient() const { return activation == Activation::kNone; }
};

struct Result {
  std::vector<uint8_t> q, transposed, derivative;
  float amax = 0;
  HostTensor<float> column_sums;
};

View as_fp8(const DeviceTensor& bytes, DType format) {
  View view = bytes.view();
  view.dtype = format;
  return view;
}

Result run(const TestBackend& backend, const GeluCase& c, const HostTensor<float>& x,
           const HostTensor<uint8_t>& bytes) {
  const DeviceTensor in(backend, c.io, x);
  const DeviceTensor derivative(backend, bytes);
  const DeviceTensor sums(backend, c.io, HostTensor<float>({kColumns}, 2.0f));
  const DeviceTensor scale(backend, DType::kF32, HostTensor<float>({1}, kScale));
  const DeviceTensor q(backend, HostTensor<uint8_t>({c.rows, kColumns}, 0xAA));
  const DeviceTensor transposed(backend, HostTensor<uint8_t>({kColumns, c.rows}, 0xAA));
  const DeviceTensor amax(backend, DType::kF32, HostTensor<float>({1}));
  const DeviceTensor saturated(backend, HostTensor<int64_t>({1}, 5));
  backend.ops->run(Quantize{.x = in.view(),
                            .scale = scale.view(),
                            .q = as_fp8(q, c.format),
                            .transposed = as_fp8(transposed, c.format),
                            .amax = amax.view(),
                            .saturated = saturated.view(),
                            .activation = c.activation,
                            .derivative = c.is_copy ? View() : derivative.view(),
                            .column_sums = c.is_gradient() ? sums.view() : View(),
                            .accumulate_sums = c.accumulate});
  return {.q = q.values<uint8_t>().values,
          .transposed = transposed.values<uint8_t>().values,
          .derivative = derivative.values<uint8_t>().values,
          .amax = amax.floats()[0],
          .column_sums = sums.floats()};
}

/// Of a byte, half a step included. A GELU of 16 bits is computed in f16.
double derivative_error(DType io) {
  return 0.5 * static_cast<double>(kDerivativeStep) +
         (io == DType::kF32 ? tolerance::kGeluF32 : tolerance::kGeluDerivativeF16);
}

/// Of f(x), which is `want`, of x.
double function_error(const GeluCase& c, double x, double want) {
  const double size = std::max(1.0, std::abs(x));
  if (!c.is_gradient() && c.io != DType::kF32) return tolerance::kGeluF16 * size;
  const double of_type = rounding(c.io) * std::abs(want) + 1e-8;
  if (c.is_gradient()) return tolerance::kRowF32 * std::abs(want) + of_type;
  return tolerance::kGeluF32 * size + of_type;
}

double value_of(DType format, uint8_t code) {
  return fp8_value(format, code) / static_cast<double>(kScale);
}

double half_unit(DType format, double value) {
  return fp8_half_unit(format, value * static_cast<double>(kScale)) / static_cast<double>(kScale);
}

void expect_function(const TestBackend& backend, const GeluCase& c) {
  SCOPED_TRACE(concat(name(c.io), " to ", name(c.format), ", ", c.rows, " rows, activation ",
                      static_cast<int>(c.activation)));
  HostTensor<float> x = random_tensor({c.rows, kColumns}, 32);
  for (float& value : x.values) value *= 2.5f;  // to where GELU is flat
  x = rounded_to(c.io, x);
  HostTensor<uint8_t> bytes({c.rows, kColumns});
  for (size_t i = 0; i < bytes.values.size(); ++i) bytes.values[i] = static_cast<uint8_t>(i * 37);
  const Result got = run(backend, c, x, bytes);

  double amax = 0;
  double amax_bound = 0;
  std::vector<double> sums(kColumns, c.accumulate == Accumulate::kYes ? 2.0 : 0.0);
  std::vector<double> bounds(kColumns, 0.0);
  std::vector<double> magnitudes(kColumns, 0.0);
  int wrong = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    const auto z = static_cast<double>(x[i]);
    const double derivative = c.is_copy ? 1.0 : derivative_of(got.derivative[at]);
    const double want = c.is_gradient() ? z * derivative : exact_gelu(z, c.activation);
    const double error = function_error(c, z, want);
    if (!c.is_gradient() && !(std::abs(derivative - exact_gelu_derivative(z, c.activation)) <=
                              derivative_error(c.io) + 1e-8)) {
      ++wrong;
    }
    const double found = value_of(c.format, got.q[at]);
    const double bound = half_unit(c.format, std::abs(want) + error) + error;
    if (!(std::abs(found - want) <= bound)) ++wrong;
    const auto turned = static_cast<size_t>(i % kColumns * c.rows + i / kColumns);
    if (got.transposed[turned] != got.q[at]) ++wrong;
    amax = std::max(amax, std::abs(want));
    amax_bound = std::max(amax_bound, error);
    const auto column = static_cast<size_t>(i % kColumns);
    sums[column] += want;
    bounds[column] += error;
    magnitudes[column] += std::abs(want);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_NEAR(static_cast<double>(got.amax), amax, amax_bound);
  if (!c.is_gradient()) return;
  for (size_t column = 0; column < kColumns; ++column) {
    const double bound = bounds[column] + tolerance::stored_column_sum(rounding(c.io), sums[column],
                                                                       magnitudes[column], c.rows);
    EXPECT_NEAR(static_cast<double>(got.column_sums[static_cast<int64_t>(column)]), sums[column],
                bound);
  }
}

using CudaQuantizeGelu = NeedsSm90a;

TEST_F(CudaQuantizeGelu, IsTheFunctionRoundedOnce) {
  for (const int64_t rows : {16, 112, 144, 528}) {
    for (const Activation activation :
         {Activation::kNone, Activation::kGeluTanh, Activation::kGelu}) {
      for (const DType format : {DType::kE4M3, DType::kE5M2}) {
        expect_function(cpu(), {.rows = rows, .activation = activation, .format = format});
        for (const DType io : kIoTypes) {
          expect_function(gpu(), {.rows = rows,
                                  .activation = activation,
                                  .format = format,
                                  .io = io,
                                  .accumulate = rows == 112 ? Accumulate::kYes : Accumulate::kNo});
        }
      }
    }
  }
}

TEST_F(CudaQuantizeGelu, SumsOfACopyAreThoseOfItsColumns) {
  for (const int64_t rows : {16, 112, 144, 528}) {
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      GeluCase c{.rows = rows, .activation = Activation::kNone, .format = format, .is_copy = true};
      expect_function(cpu(), c);
      c.accumulate = rows == 112 ? Accumulate::kYes : Accumulate::kNo;
      for (const DType io : kIoTypes) {
        c.io = io;
        expect_function(gpu(), c);
      }
    }
  }
}

TEST_F(CudaQuantizeGelu, NoRowsLeaveOrClearTheSums) {
  const HostTensor<float> none({0, kColumns});
  const HostTensor<uint8_t> no_bytes({0, kColumns});
  for (const bool is_copy : {false, true}) {
    GeluCase c{
        .rows = 0, .activation = Activation::kNone, .format = DType::kE5M2, .is_copy = is_copy};
    EXPECT_EQ(run(gpu(), c, none, no_bytes).column_sums[7], 0.0f);
    c.accumulate = Accumulate::kYes;
    EXPECT_EQ(run(gpu(), c, none, no_bytes).column_sums[7], 2.0f);
  }
}

/// Of all finite numbers of 16 bits.
TEST_F(CudaQuantizeGelu, EveryDerivativeFitsIntoItsByte) {
  constexpr int64_t kRows = 288;  // 69,120 elements
  for (const DType io : {DType::kF16, DType::kBF16}) {
    HostTensor<float> z({kRows, kColumns});
    for (uint32_t bits = 0; bits < z.values.size(); ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const float value = io == DType::kF16 ? to_float(Half{half}) : to_float(BFloat16{half});
      z.values[bits] = std::isfinite(value) ? value : 0.0f;
    }
    for (const Activation activation : {Activation::kGeluTanh, Activation::kGelu}) {
      const GeluCase c{.rows = kRows, .activation = activation, .format = DType::kE4M3, .io = io};
      const Result got = run(gpu(), c, z, HostTensor<uint8_t>({kRows, kColumns}, 0xAA));
      double worst = 0;
      for (size_t i = 0; i < z.values.size(); ++i) {
        const auto at = static_cast<double>(z.values[i]);
        worst = std::max(worst, std::abs(derivative_of(got.derivative[i]) -
                                         exact_gelu_derivative(at, activation)));
      }
      EXPECT_LE(worst, derivative_error(io) + 1e-8) << name(io);
    }
  }
}

}  // namespace
}  // namespace bertha::testing
