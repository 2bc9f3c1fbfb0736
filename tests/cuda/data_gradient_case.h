#pragma once

#include "tests/cuda/linear_case.h"

namespace bertha::testing {

/// dx of one pass; `before` is what it adds to.
inline HostTensor<float> data_gradient(const TestBackend& backend, const Case& c, DType dtype,
                                       const HostTensor<float>& saved,
                                       const HostTensor<float>& before, Activation activation,
                                       Accumulate accumulate) {
  const DeviceTensor dy(backend, dtype, c.dy);
  const DeviceTensor weight(backend, dtype, c.weight);
  const DeviceTensor at(backend, dtype, saved);
  const DeviceTensor dx(backend, dtype, before);
  backend.ops->run(LinearBwdData{.dy = dy.view(),
                                 .weight = weight.view(),
                                 .saved = activation == Activation::kNone ? View() : at.view(),
                                 .dx = dx.view(),
                                 .activation = activation,
                                 .accumulate = accumulate});
  return dx.floats();
}

inline void expect_data_gradient(const Case& c, Activation activation, const TestBackend& on) {
  const double unit = rounding(c.dtype);
  // Outputs of tanh are below 1.
  const float reach = activation == Activation::kTanh ? 0.49f : 1.5f;
  const HostTensor<float> saved =
      rounded_to(c.dtype, scaled(random_tensor({c.shape.rows, c.shape.inputs}, 5), reach));
  const auto run = [&](const TestBackend& backend, DType type, Activation below) {
    return data_gradient(backend, c, type, saved, c.inputs(), below, Accumulate::kNo);
  };
  const HostTensor<float> want = run(cpu(), DType::kF32, activation);
  const HostTensor<float> plain = run(cpu(), DType::kF32, Activation::kNone);
  std::vector<double> bound;
  for (int64_t i = 0; i < want.elements(); ++i) {
    // The GEMM may be rounded before it is multiplied by the derivative, whose error is that of its
    // function.
    const double size = std::abs(static_cast<double>(plain[i]));
    const double function = activation == Activation::kNone ? 0.0
                            : c.dtype == DType::kF32        ? 4 * tolerance::kGeluF32 * size
                                                     : tolerance::kGeluInstruction * 4 * size;
    bound.push_back(tolerance::kGeluDerivative *
                        (Case::product_error(c.shape.outputs, 1.0) + unit * size) +
                    function + unit * std::abs(static_cast<double>(want[i])));
  }
  expect_within(run(on, c.dtype, activation), want, bound,
                concat("dx ", text(c.shape, c.dtype), " ", static_cast<int>(activation)));
}

/// dx times the derivative at `saved`, and the bias gradient below, added to `before`.
struct DataAndBias {
  HostTensor<float> dx, dbias;
};

inline DataAndBias data_and_bias_gradient(const TestBackend& backend, const Case& c,
                                          const HostTensor<float>& saved,
                                          const HostTensor<float>& before, Activation activation,
                                          Accumulate accumulate) {
  const DeviceTensor dy(backend, c.dtype, c.dy);
  const DeviceTensor weight(backend, c.dtype, c.weight);
  const DeviceTensor at(backend, c.dtype, saved);
  const DeviceTensor dx(backend, c.dtype, c.inputs());
  const DeviceTensor dbias(backend, c.dtype, before);
  backend.ops->run(LinearBwdData{.dy = dy.view(),
                                 .weight = weight.view(),
                                 .saved = activation == Activation::kNone ? View() : at.view(),
                                 .dx = dx.view(),
                                 .dbias_below = dbias.view(),
                                 .activation = activation,
                                 .accumulate_dbias = accumulate});
  return {.dx = dx.floats(), .dbias = dbias.floats()};
}

/// dbias is the sum of the columns of that dx, and of `before` where it adds.
inline void expect_column_sums(const DataAndBias& got, const HostTensor<float>& before,
                               Accumulate accumulate, DType io, const std::string& what) {
  const bool adds = accumulate == Accumulate::kYes;
  const int64_t columns = before.elements();
  const int64_t rows = got.dx.elements() / columns;
  HostTensor<float> want({columns}, 0.0f);
  std::vector<double> bound;
  for (int64_t k = 0; k < columns; ++k) {
    double sum = adds ? static_cast<double>(before[k]) : 0.0;
    double magnitude = std::abs(sum);
    for (int64_t t = 0; t < rows; ++t) {
      const double value = static_cast<double>(got.dx[t * columns + k]);
      sum += value;
      magnitude += std::abs(value);
    }
    want[k] = static_cast<float>(sum);
    bound.push_back(tolerance::stored_column_sum(rounding(io), sum, magnitude, rows + 1));
  }
  expect_within(got.dbias, want, bound, concat("dbias below ", what, adds ? " add" : " overwrite"));
}

/// All bytes, in another order in each row.
inline HostTensor<uint8_t> derivative_bytes(const Case& c) {
  HostTensor<uint8_t> bytes({c.shape.rows, c.shape.inputs});
  for (size_t i = 0; i < bytes.values.size(); ++i) {
    bytes.values[i] = static_cast<uint8_t>(i * 37 + i / 256 * 11);
  }
  return bytes;
}

/// dx times the derivative in bytes, and the bias gradient below.
inline DataAndBias multiplied_gradient(const TestBackend& backend, const Case& c, DType dtype,
                                       const HostTensor<uint8_t>& bytes,
                                       const HostTensor<float>& before,
                                       Accumulate accumulate = Accumulate::kNo) {
  const DeviceTensor dy(backend, dtype, c.dy);
  const DeviceTensor weight(backend, dtype, c.weight);
  const DeviceTensor derivative(backend, bytes);
  const DeviceTensor dx(backend, dtype, c.inputs());
  const DeviceTensor dbias(backend, dtype, before);
  backend.ops->run(LinearBwdData{.dy = dy.view(),
                                 .weight = weight.view(),
                                 .saved = View(),
                                 .dx = dx.view(),
                                 .derivative = derivative.view(),
                                 .dbias_below = dbias.view(),
                                 .accumulate_dbias = accumulate});
  return {.dx = dx.floats(), .dbias = dbias.floats()};
}

inline void expect_multiplied_gradient(const Case& c, const TestBackend& on) {
  const HostTensor<uint8_t> bytes = derivative_bytes(c);
  const HostTensor<float> plain =
      data_gradient(cpu(), c, DType::kF32, c.x, c.inputs(), Activation::kNone, Accumulate::kNo);
  const HostTensor<float> none = garbage_tensor({c.shape.inputs});
  const double unit = rounding(c.dtype);
  const HostTensor<float> want = multiplied_gradient(cpu(), c, DType::kF32, bytes, none).dx;
  std::vector<double> bound;
  for (int64_t i = 0; i < want.elements(); ++i) {
    // The GEMM may be rounded before it is multiplied; the derivative, up to 1.135, is rounded to
    // f16.
    const double size = std::abs(static_cast<double>(plain[i]));
    const double factor = c.dtype == DType::kF32 ? 2 * tolerance::kRoundF32 : rounding(DType::kF16);
    bound.push_back(1.135 * (Case::product_error(c.shape.outputs, 1.0) + unit * size) +
                    (factor + unit) * std::abs(static_cast<double>(want[i])));
  }
  const std::string what = concat(text(c.shape, c.dtype), " in bytes");
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
    const bool adds = accumulate == Accumulate::kYes;
    const HostTensor<float> before =
        adds ? rounded_to(c.dtype, random_tensor({c.shape.inputs}, 9)) : none;
    const DataAndBias got = multiplied_gradient(on, c, c.dtype, bytes, before, accumulate);
    expect_within(got.dx, want, bound, "dx " + what);
    expect_column_sums(got, before, accumulate, c.dtype, what);
  }
}

inline void expect_bias_below(const Case& c, Activation activation, const TestBackend& on) {
  const HostTensor<float> saved =
      rounded_to(c.dtype, scaled(random_tensor({c.shape.rows, c.shape.inputs}, 5), 0.49f));
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
    const bool adds = accumulate == Accumulate::kYes;
    const HostTensor<float> before = adds ? rounded_to(c.dtype, random_tensor({c.shape.inputs}, 9))
                                          : garbage_tensor({c.shape.inputs});
    const DataAndBias got = data_and_bias_gradient(on, c, saved, before, activation, accumulate);
    expect_column_sums(got, before, accumulate, c.dtype,
                       concat(text(c.shape, c.dtype), " ", static_cast<int>(activation)));
  }
}

}  // namespace bertha::testing
