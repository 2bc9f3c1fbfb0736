#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/linear.h"
#include "tests/cuda/gpu.h"
#include "tests/support/exact_gelu.h"

namespace bertha::testing {

struct Shape {
  int64_t rows, inputs, outputs;
};

inline std::string text(const Shape& shape, DType dtype) {
  return concat(name(dtype), " T=", shape.rows, " K=", shape.inputs, " N=", shape.outputs);
}

/// Where a product is added to what was there, it is rounded before and after.
inline double sum_rounding(DType dtype, float sum, float before) {
  const double product = static_cast<double>(sum) - static_cast<double>(before);
  return rounding(dtype) * (std::abs(static_cast<double>(sum)) + std::abs(product));
}

/// |actual - want| <= bound, element by element.
inline void expect_within(const HostTensor<float>& actual, const HostTensor<float>& want,
                          const std::vector<double>& bound, const std::string& what) {
  ASSERT_EQ(actual.elements(), want.elements()) << what;
  for (int64_t i = 0; i < actual.elements(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - static_cast<double>(want[i]));
    if (error <= bound[static_cast<size_t>(i)]) continue;  // false for NaN
    ADD_FAILURE() << what << "[" << i << "] = " << actual[i] << ", want " << want[i] << " within "
                  << bound[static_cast<size_t>(i)];
    return;
  }
}

inline HostTensor<float> scaled(HostTensor<float> tensor, float factor) {
  for (float& value : tensor.values) value *= factor;
  return tensor;
}

/// The f32 reference and the device get the same operands. Values are of order one: |x| <= 2,
/// |weight| <= 1/2, so that a sum over k has magnitude at most k.
struct Case {
  Case(const Shape& shape_in, DType dtype_in)
      : shape(shape_in),
        dtype(dtype_in),
        x(rounded_to(dtype, random_tensor({shape.rows, shape.inputs}, 1))),
        weight(rounded_to(dtype, scaled(random_tensor({shape.outputs, shape.inputs}, 2), 0.25f))),
        bias(rounded_to(dtype, random_tensor({shape.outputs}, 3))),
        dy(rounded_to(dtype, random_tensor({shape.rows, shape.outputs}, 4))) {}

  HostTensor<float> outputs() const { return garbage_tensor({shape.rows, shape.outputs}); }
  HostTensor<float> inputs() const { return garbage_tensor({shape.rows, shape.inputs}); }

  /// Error of one product of length k with magnitudes up to `largest` per term, before rounding.
  static double product_error(int64_t k, double largest) {
    return 2 * tolerance::product_f32(k) * static_cast<double>(k) * largest;
  }

  Shape shape;
  DType dtype;
  HostTensor<float> x, weight, bias, dy;
};

/// y and the pre-activation of one forward pass.
struct Forward {
  HostTensor<float> y, z;
};

inline Forward forward(const TestBackend& backend, const Case& c, DType dtype, bool with_bias,
                       Activation activation) {
  const DeviceTensor x(backend, dtype, c.x);
  const DeviceTensor weight(backend, dtype, c.weight);
  const DeviceTensor bias(backend, dtype, c.bias);
  const DeviceTensor y(backend, dtype, c.outputs());
  const DeviceTensor z(backend, dtype, c.outputs());
  backend.ops->run(LinearFwd{.x = x.view(),
                             .weight = weight.view(),
                             .bias = with_bias ? bias.view() : View(),
                             .y = y.view(),
                             .pre_activation = keeps_pre_activation(activation) ? z.view() : View(),
                             .activation = activation});
  return {.y = y.floats(), .z = z.floats()};
}

inline void expect_forward(const Case& c, bool with_bias, Activation activation,
                           const TestBackend& on) {
  const Forward got = forward(on, c, c.dtype, with_bias, activation);
  const Forward want = forward(cpu(), c, DType::kF32, with_bias, activation);
  // Without an activation y is z.
  const HostTensor<float> z = forward(cpu(), c, DType::kF32, with_bias, Activation::kNone).y;
  const double unit = rounding(c.dtype);
  const bool gelu = keeps_pre_activation(activation);
  std::vector<double> z_bound, y_bound;
  for (int64_t i = 0; i < z.elements(); ++i) {
    // z is rounded once in the product's epilogue, or a second time where the bias (up to 2) is
    // added to the rounded product.
    const double size = std::abs(static_cast<double>(z[i]));
    const double error = Case::product_error(c.shape.inputs, 1.0) + 4 * tolerance::kRoundF32 +
                         unit * (2 * size + (with_bias ? 2.0 : 0.0));
    z_bound.push_back(error);
    const double instruction =
        c.dtype == DType::kF32 ? tolerance::kGeluF32 : tolerance::kGeluInstruction;
    const double function = gelu                              ? instruction * std::max(1.0, size)
                            : activation == Activation::kTanh ? 4 * tolerance::kRoundF32
                                                              : 0.0;
    y_bound.push_back(tolerance::kGeluDerivative * error + function +
                      unit * std::abs(static_cast<double>(want.y[i])));
  }
  const std::string what = concat(text(c.shape, c.dtype), with_bias ? " bias" : " no bias",
                                  " activation ", static_cast<int>(activation));
  expect_within(got.y, want.y, y_bound, "y " + what);
  if (gelu) expect_within(got.z, want.z, z_bound, "pre_activation " + what);
}

inline constexpr Activation kGelus[] = {Activation::kGeluTanh, Activation::kGelu};

/// y and the bytes of the derivative of one forward pass with a GELU.
struct ForwardInBytes {
  HostTensor<float> y;
  HostTensor<uint8_t> bytes;

  HostTensor<float> derivatives() const {
    HostTensor<float> values;
    for (const uint8_t byte : bytes.values) {
      values.values.push_back(static_cast<float>(derivative_of(byte)));
    }
    return values;
  }
};

inline ForwardInBytes forward_in_bytes(const TestBackend& backend, const Case& c, DType dtype,
                                       bool with_bias, Activation gelu) {
  const DeviceTensor x(backend, dtype, c.x);
  const DeviceTensor weight(backend, dtype, c.weight);
  const DeviceTensor bias(backend, dtype, c.bias);
  const DeviceTensor y(backend, dtype, c.outputs());
  const DeviceTensor bytes(backend, HostTensor<uint8_t>({c.shape.rows, c.shape.outputs}, 0xAA));
  backend.ops->run(LinearFwd{.x = x.view(),
                             .weight = weight.view(),
                             .bias = with_bias ? bias.view() : View(),
                             .y = y.view(),
                             .pre_activation = View(),
                             .derivative = bytes.view(),
                             .activation = gelu});
  return {.y = y.floats(), .bytes = bytes.values<uint8_t>()};
}

inline void expect_forward_in_bytes(const Case& c, bool with_bias, Activation gelu,
                                    const TestBackend& on) {
  const ForwardInBytes got = forward_in_bytes(on, c, c.dtype, with_bias, gelu);
  const ForwardInBytes want = forward_in_bytes(cpu(), c, DType::kF32, with_bias, gelu);
  const HostTensor<float> z = forward(cpu(), c, DType::kF32, with_bias, Activation::kNone).y;
  const double unit = rounding(c.dtype);
  const bool f32 = c.dtype == DType::kF32;
  std::vector<double> y_bound, derivative_bound;
  for (int64_t i = 0; i < z.elements(); ++i) {
    // z is rounded once or twice, see expect_forward().
    const double size = std::abs(static_cast<double>(z[i]));
    const double error = Case::product_error(c.shape.inputs, 1.0) + 4 * tolerance::kRoundF32 +
                         unit * (2 * size + (with_bias ? 2.0 : 0.0));
    const double function = f32 ? tolerance::kGeluF32 : tolerance::kGeluF16;
    y_bound.push_back(tolerance::kGeluDerivative * error + function * std::max(1.0, size) +
                      unit * std::abs(static_cast<double>(want.y[i])));
    // The derivative changes by less than 0.8 of what z changes by.
    const double slope =
        f32 ? tolerance::kGeluF32 * std::max(1.0, size) : tolerance::kGeluDerivativeF16;
    derivative_bound.push_back(0.8 * error + slope + static_cast<double>(kDerivativeStep) +
                               4 * tolerance::kRoundF32);
  }
  const std::string what = concat(text(c.shape, c.dtype), with_bias ? " bias" : " no bias",
                                  " activation ", static_cast<int>(gelu));
  expect_within(got.y, want.y, y_bound, "y " + what);
  expect_within(got.derivatives(), want.derivatives(), derivative_bound, "derivative " + what);
}

}  // namespace bertha::testing
