#include "kernels/ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/ops/quantize.h"

namespace bertha {
namespace {

using Doubles = std::vector<double>;

constexpr Activation kActivations[] = {Activation::kNone, Activation::kGeluTanh, Activation::kTanh,
                                       Activation::kGelu};

double activate(Activation activation, double z) {
  if (activation == Activation::kNone) return z;
  if (activation == Activation::kTanh) return std::tanh(z);
  if (activation == Activation::kGelu) return 0.5 * z * (1.0 + std::erf(z / std::numbers::sqrt2));
  return 0.5 * z *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

/// Derivative of the activation at z by its closed form.
double derivative(Activation activation, double z) {
  if (activation == Activation::kNone) return 1.0;
  if (activation == Activation::kTanh) return 1.0 - std::tanh(z) * std::tanh(z);
  if (activation == Activation::kGelu) {
    return 0.5 * (1.0 + std::erf(z / std::numbers::sqrt2)) +
           z * std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi);
  }
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double t = std::tanh(root * (z + 0.044715 * z * z * z));
  return 0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * root * (1.0 + 3 * 0.044715 * z * z);
}

struct Case {
  Case(int64_t rows_in, int64_t inputs_in, int64_t outputs_in, Activation activation_in)
      : rows(rows_in), inputs(inputs_in), outputs(outputs_in), activation(activation_in) {
    // Keeps pre-activations of order one, where the activations bend.
    for (float& value : weight.values) value *= 0.25f;
  }

  void forward(int threads) {
    run_on_cpu(LinearFwd{.x = x.view(),
                         .weight = weight.view(),
                         .bias = with_bias ? bias.view() : View(),
                         .y = y.view(),
                         .pre_activation = keeps_pre_activation(activation) ? pre.view() : View(),
                         .activation = activation},
               threads);
  }

  /// dy -> dz through the activation, then dz -> dx, dweight, dbias.
  void backward(int threads, Accumulate accumulate) {
    dz = dy;
    if (activation != Activation::kNone) {
      run_on_cpu(ActivationBwd{.dy = dy.view(),
                               .saved = keeps_pre_activation(activation) ? pre.view() : y.view(),
                               .dx = dz.view(),
                               .activation = activation},
                 threads);
    }
    run_on_cpu(LinearBwdData{.dy = dz.view(),
                             .weight = weight.view(),
                             .saved = View(),
                             .dx = dx.view(),
                             .accumulate = accumulate},
               threads);
    run_on_cpu(LinearBwdWeight{.dy = dz.view(),
                               .x = x.view(),
                               .dweight = dweight.view(),
                               .dbias = with_bias ? dbias.view() : View(),
                               .accumulate = accumulate},
               threads);
  }

  double at(const HostTensor<float>& tensor, int64_t index) const {
    return static_cast<double>(tensor[index]);
  }

  Doubles naive_pre_activation() const {
    Doubles z;
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t n = 0; n < outputs; ++n) {
        double sum = with_bias ? at(bias, n) : 0.0;
        for (int64_t k = 0; k < inputs; ++k) {
          sum += at(x, t * inputs + k) * at(weight, n * inputs + k);
        }
        z.push_back(sum);
      }
    }
    return z;
  }

  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  Activation activation;
  bool with_bias = true;
  HostTensor<float> x = random_tensor({rows, inputs}, 1);
  HostTensor<float> weight = random_tensor({outputs, inputs}, 2);
  HostTensor<float> bias = random_tensor({outputs}, 3);
  HostTensor<float> y = garbage_tensor({rows, outputs});
  HostTensor<float> pre = garbage_tensor({rows, outputs});
  HostTensor<float> dy = random_tensor({rows, outputs}, 4);
  HostTensor<float> dz = garbage_tensor({rows, outputs});
  HostTensor<float> dx = garbage_tensor({rows, inputs});
  HostTensor<float> dweight = garbage_tensor({outputs, inputs});
  HostTensor<float> dbias = garbage_tensor({outputs});
};

struct Shape {
  int64_t rows, inputs, outputs;
};
constexpr Shape kShapes[] = {{0, 8, 3},   {1, 1, 1},     {7, 33, 129},
                             {33, 64, 5}, {511, 24, 33}, {600, 7, 40}};

TEST(Linear, ForwardMatchesTheDefinition) {
  for (const Shape& shape : kShapes) {
    for (const Activation activation : kActivations) {
      Case c(shape.rows, shape.inputs, shape.outputs, activation);
      c.forward(1);
      const Doubles z = c.naive_pre_activation();
      Doubles want;
      for (const double value : z) want.push_back(activate(activation, value));
      const std::string what = concat(" at ", shape.rows, "x", shape.inputs, "x", shape.outputs,
                                      ", activation ", static_cast<int>(activation));
      // sum |a| |b| is at most K * 2 * 0.5, and an activation's derivative at most 1.13.
      const double scale = 2.0 + 1.13 * static_cast<double>(shape.inputs);
      const double bound = tolerance::product_f32(shape.inputs) + tolerance::kGeluF32;
      expect_close(c.y.values, want, bound, "y" + what, scale);
      if (keeps_pre_activation(activation)) {
        expect_close(c.pre.values, z, bound, "pre_activation" + what, scale);
      }
    }
  }
}

TEST(Linear, ForwardWithoutBiasLeavesItOut) {
  Case c(7, 33, 5, Activation::kNone);
  c.with_bias = false;
  c.forward(1);
  expect_close(c.y.values, c.naive_pre_activation(), tolerance::product_f32(33), "y", 35.0);
}

TEST(Linear, BackwardMatchesTheDefinition) {
  for (const Shape& shape : kShapes) {
    Case c(shape.rows, shape.inputs, shape.outputs, Activation::kNone);
    c.backward(1, Accumulate::kNo);
    Doubles dx(static_cast<size_t>(shape.rows * shape.inputs), 0.0);
    Doubles dweight(static_cast<size_t>(shape.outputs * shape.inputs), 0.0);
    Doubles dbias(static_cast<size_t>(shape.outputs), 0.0);
    for (int64_t t = 0; t < shape.rows; ++t) {
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const double dy = c.at(c.dy, t * shape.outputs + n);
        dbias[static_cast<size_t>(n)] += dy;
        for (int64_t k = 0; k < shape.inputs; ++k) {
          dx[static_cast<size_t>(t * shape.inputs + k)] +=
              dy * c.at(c.weight, n * shape.inputs + k);
          dweight[static_cast<size_t>(n * shape.inputs + k)] +=
              dy * c.at(c.x, t * shape.inputs + k);
        }
      }
    }
    const std::string what = concat(" at ", shape.rows, "x", shape.inputs, "x", shape.outputs);
    expect_close(c.dx.values, dx, tolerance::product_f32(shape.outputs), "dx" + what,
                 static_cast<double>(shape.outputs));
    expect_close(c.dweight.values, dweight, tolerance::product_f32(shape.rows), "dweight" + what,
                 4.0 * static_cast<double>(shape.rows) + 1.0);
    expect_close(c.dbias.values, dbias, tolerance::kRowF32, "dbias" + what);
  }
}

TEST(Linear, ActivationGradientMatchesTheClosedForm) {
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kTanh, Activation::kGelu}) {
    Case c(511, 7, 33, activation);
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const Doubles z = c.naive_pre_activation();
    Doubles want;
    for (size_t i = 0; i < z.size(); ++i) {
      want.push_back(c.at(c.dy, static_cast<int64_t>(i)) * derivative(activation, z[i]));
    }
    expect_close(c.dz.values, want, tolerance::product_f32(7) + 4 * tolerance::kGeluF32, "dz", 8.0);
  }
}

TEST(Linear, BackwardDataFusesTheActivationBelow) {
  for (const Activation activation : kActivations) {
    Case c(33, 24, 40, activation);
    HostTensor<float> saved = random_tensor({33, 24}, 8);
    for (float& value : saved.values) value *= 0.49f;  // a possible output of tanh
    LinearBwdData args{
        .dy = c.dy.view(), .weight = c.weight.view(), .saved = View(), .dx = c.dx.view()};
    run_on_cpu(args);
    const HostTensor<float> plain = c.dx;
    args.activation = activation;
    if (activation != Activation::kNone) args.saved = saved.view();
    run_on_cpu(args);
    Doubles want;
    for (int64_t i = 0; i < plain.elements(); ++i) {
      const double value = c.at(saved, i);
      const double factor =
          activation == Activation::kTanh ? 1.0 - value * value : derivative(activation, value);
      want.push_back(c.at(plain, i) * factor);
    }
    expect_close(c.dx.values, want, tolerance::kGeluF32, "dx");
  }
}

constexpr Activation kGelus[] = {Activation::kGeluTanh, Activation::kGelu};

double derivative_of(uint8_t byte) {
  return static_cast<double>(byte - kDerivativeZero) * static_cast<double>(kDerivativeStep);
}

/// Forward with the derivative instead of the pre-activation; y is in `c`.
HostTensor<uint8_t> forward_in_bytes(Case& c) {
  HostTensor<uint8_t> bytes({c.rows, c.outputs}, 0xAA);
  run_on_cpu(LinearFwd{.x = c.x.view(),
                       .weight = c.weight.view(),
                       .bias = c.bias.view(),
                       .y = c.y.view(),
                       .pre_activation = View(),
                       .derivative = bytes.view(),
                       .activation = c.activation});
  return bytes;
}

TEST(Linear, ForwardStoresTheDerivativeInBytes) {
  for (const Shape& shape : kShapes) {
    if (shape.rows == 0) continue;
    for (const Activation gelu : kGelus) {
      Case c(shape.rows, shape.inputs, shape.outputs, gelu);
      c.forward(1);
      const std::vector<float> y = c.y.values;
      const HostTensor<uint8_t> bytes = forward_in_bytes(c);
      EXPECT_EQ(c.y.values, y);
      for (int64_t i = 0; i < bytes.elements(); ++i) {
        ASSERT_NEAR(derivative_of(bytes[i]), derivative(gelu, c.at(c.pre, i)),
                    0.5 * static_cast<double>(kDerivativeStep) + 16 * tolerance::kGeluF32);
      }
    }
  }
}

TEST(Linear, BackwardDataMultipliesByTheDerivativeInBytes) {
  Case c(33, 24, 40, Activation::kNone);
  HostTensor<uint8_t> bytes({33, 24});
  for (size_t i = 0; i < bytes.values.size(); ++i) bytes.values[i] = static_cast<uint8_t>(i * 37);
  HostTensor<float> dbias = garbage_tensor({24});
  LinearBwdData args{
      .dy = c.dy.view(), .weight = c.weight.view(), .saved = View(), .dx = c.dx.view()};
  run_on_cpu(args);
  Doubles want;
  Doubles sums(24, 0.0);
  for (int64_t i = 0; i < c.dx.elements(); ++i) {
    want.push_back(c.at(c.dx, i) * derivative_of(bytes[i]));
    sums[static_cast<size_t>(i % 24)] += want.back();
  }
  args.derivative = bytes.view();
  args.dbias_below = dbias.view();
  run_on_cpu(args);
  expect_close(c.dx.values, want, 3 * tolerance::kRoundF32, "dx");
  expect_close(dbias.values, sums, tolerance::kRowF32, "dbias_below");
}

TEST(Linear, BytesAreTheSlopeOfTheGelu) {
  for (const Activation gelu : kGelus) {
    Case c(5, 9, 11, gelu);
    Case above(5, 11, 7, Activation::kNone);
    HostTensor<uint8_t> bytes = forward_in_bytes(c);
    LinearBwdData args{.dy = above.dy.view(),
                       .weight = above.weight.view(),
                       .saved = View(),
                       .dx = above.dx.view()};
    run_on_cpu(args);
    const HostTensor<float> plain = above.dx;
    args.derivative = bytes.view();
    args.dbias_below = c.dbias.view();
    run_on_cpu(args);
    constexpr float kMove = 1.0f / 64;
    for (int64_t n = 0; n < c.outputs; ++n) {
      const auto loss = [&](float move) {
        const float before = c.bias[n];
        c.bias[n] += move;
        forward_in_bytes(c);
        c.bias[n] = before;
        return weighted_sum(c.y, plain).value;
      };
      double magnitude = 0.0;
      for (int64_t t = 0; t < c.rows; ++t) magnitude += std::abs(c.at(plain, t * c.outputs + n));
      // Half a step; the difference's own error is below 1e-3 of an element: h^2 / 6 times the
      // third derivative, which is below 2, and rounding over 2 h.
      EXPECT_NEAR(c.at(c.dbias, n), (loss(kMove) - loss(-kMove)) / (2 * kMove),
                  magnitude * (0.5 * static_cast<double>(kDerivativeStep) + 1e-3))
          << n;
    }
  }
}

TEST(Linear, BackwardDataSumsTheBiasGradientBelow) {
  for (const int64_t rows : {0, 1, 33, 511}) {
    for (const Activation activation : kActivations) {
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        Case c(rows, 24, 40, activation);
        HostTensor<float> saved = random_tensor({rows, 24}, 8);
        for (float& value : saved.values) value *= 0.49f;  // a possible output of tanh
        const bool adds = accumulate == Accumulate::kYes;
        const HostTensor<float> before = adds ? random_tensor({24}, 9) : garbage_tensor({24});
        HostTensor<float> dbias = before;
        run_on_cpu(LinearBwdData{.dy = c.dy.view(),
                                 .weight = c.weight.view(),
                                 .saved = activation == Activation::kNone ? View() : saved.view(),
                                 .dx = c.dx.view(),
                                 .dbias_below = dbias.view(),
                                 .activation = activation,
                                 .accumulate_dbias = accumulate});
        Doubles want;
        for (int64_t k = 0; k < 24; ++k) {
          double sum = adds ? c.at(before, k) : 0.0;
          for (int64_t t = 0; t < rows; ++t) sum += c.at(c.dx, t * 24 + k);
          want.push_back(sum);
        }
        expect_close(dbias.values, want, tolerance::kRowF32,
                     concat("dbias_below of ", rows, " rows, activation ",
                            static_cast<int>(activation), adds ? ", adds" : ""));
      }
    }
  }
}

TEST(Linear, BackwardMatchesFiniteDifferences) {
  for (const Activation activation : kActivations) {
    expect_finite_differences(Case(5, 9, 11, activation),
                              {{"x", &Case::x, &Case::dx},
                               {"weight", &Case::weight, &Case::dweight},
                               {"bias", &Case::bias, &Case::dbias}});
  }
}

TEST(Linear, AccumulateAddsToEveryGradient) {
  Case c(33, 24, 17, Activation::kNone);
  c.backward(1, Accumulate::kNo);
  const HostTensor<float> dx = c.dx;
  const HostTensor<float> dweight = c.dweight;
  const HostTensor<float> dbias = c.dbias;
  c.backward(1, Accumulate::kYes);
  for (int64_t i = 0; i < dx.elements(); ++i) EXPECT_FLOAT_EQ(c.dx[i], 2 * dx[i]);
  for (int64_t i = 0; i < dweight.elements(); ++i) EXPECT_FLOAT_EQ(c.dweight[i], 2 * dweight[i]);
  for (int64_t i = 0; i < dbias.elements(); ++i) EXPECT_EQ(c.dbias[i], 2 * dbias[i]);
}

TEST(Linear, NoRowsLeaveZeroOrUntouchedParameterGradients) {
  Case c(0, 8, 3, Activation::kNone);
  c.backward(1, Accumulate::kNo);
  for (const float value : c.dweight.values) EXPECT_EQ(value, 0.0f);
  for (const float value : c.dbias.values) EXPECT_EQ(value, 0.0f);
  c.dweight.values.assign(c.dweight.values.size(), 2.0f);
  c.backward(1, Accumulate::kYes);
  for (const float value : c.dweight.values) EXPECT_EQ(value, 2.0f);
}

TEST(Linear, ActivationGradientMayReplaceTheOutputGradient) {
  Case c(33, 9, 11, Activation::kGeluTanh);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  run_on_cpu(ActivationBwd{.dy = c.dy.view(), .saved = c.pre.view(), .dx = c.dy.view()});
  EXPECT_EQ(c.dy.values, c.dz.values);
}

TEST(Linear, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(1500, 40, 530, Activation::kGeluTanh),
                          {&Case::y, &Case::dx, &Case::dweight, &Case::dbias});
}

}  // namespace
}  // namespace bertha
