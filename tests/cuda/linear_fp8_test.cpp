#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/ops/linear.h"
#include "tests/cuda/data_gradient_case.h"

namespace bertha::testing {
namespace {

constexpr Shape kShapes[] = {
    {16, 16, 16}, {48, 80, 112}, {48, 4096, 64}, {512, 1024, 256}, {4096, 128, 256}};
constexpr DType kGradients[] = {DType::kE4M3, DType::kE5M2};
constexpr float kXInverse = 0.5f;
constexpr float kWeightInverse = 0.0625f;
constexpr float kDyInverse = 0.25f;

HostTensor<float> transposed(const HostTensor<float>& matrix) {
  const int64_t rows = matrix.extents[0];
  const int64_t columns = matrix.extents[1];
  HostTensor<float> turned({columns, rows});
  for (int64_t i = 0; i < matrix.elements(); ++i) {
    turned[i % columns * rows + i / columns] = matrix[i];
  }
  return turned;
}

HostTensor<float> absolute(HostTensor<float> values) {
  for (float& value : values.values) value = std::abs(value);
  return values;
}

/// Numbers that are rounded to fp8 as they are uploaded, and what they stand for is times the
/// inverse scale.
struct Fp8Case {
  explicit Fp8Case(const Shape& shape_in, DType gradient_in = DType::kE5M2)
      : shape(shape_in),
        gradient(gradient_in),
        x(random_tensor({shape.rows, shape.inputs}, 1)),
        weight(random_tensor({shape.outputs, shape.inputs}, 2)),
        dy(random_tensor({shape.rows, shape.outputs}, 4)) {}

  /// Sums of its products are the sums of magnitudes that errors are relative to.
  Fp8Case magnitudes() const {
    Fp8Case positive = *this;
    for (HostTensor<float>* values : {&positive.x, &positive.weight, &positive.dy}) {
      *values = absolute(*values);
    }
    return positive;
  }

  Shape shape;
  DType gradient;
  HostTensor<float> x, weight, dy;
};

DeviceTensor scalar(const TestBackend& backend, float value) {
  return {backend, DType::kF32, HostTensor<float>({1}, value)};
}

Forward forward(const TestBackend& backend, const Fp8Case& c, DType io,
                const HostTensor<float>* bias, Activation activation) {
  const DeviceTensor x(backend, DType::kE4M3, c.x);
  const DeviceTensor weight(backend, DType::kE4M3, c.weight);
  const DeviceTensor added(backend, io, bias == nullptr ? HostTensor<float>({1}) : *bias);
  const DeviceTensor y(backend, io, garbage_tensor({c.shape.rows, c.shape.outputs}));
  const DeviceTensor z(backend, io, garbage_tensor({c.shape.rows, c.shape.outputs}));
  const DeviceTensor x_inverse = scalar(backend, kXInverse);
  const DeviceTensor weight_inverse = scalar(backend, kWeightInverse);
  backend.ops->run(LinearFwd{.x = x.view(),
                             .weight = weight.view(),
                             .bias = bias == nullptr ? View() : added.view(),
                             .y = y.view(),
                             .pre_activation = keeps_pre_activation(activation) ? z.view() : View(),
                             .activation = activation,
                             .x_inverse_scale = x_inverse.view(),
                             .weight_inverse_scale = weight_inverse.view()});
  return {.y = y.floats(), .z = z.floats()};
}

DataAndBias data_gradient(const TestBackend& backend, const Fp8Case& c, DType io,
                          const HostTensor<float>& before, const HostTensor<float>& saved,
                          Activation activation, Accumulate accumulate, bool f32_sums = false) {
  const DeviceTensor dy(backend, c.gradient, c.dy);
  const DeviceTensor weight(backend, DType::kE4M3, transposed(c.weight));
  const DeviceTensor at(backend, io, saved);
  const DeviceTensor dx(backend, io, before);
  const DeviceTensor dbias(backend, io, garbage_tensor({c.shape.inputs}));
  const DeviceTensor dy_inverse = scalar(backend, kDyInverse);
  const DeviceTensor weight_inverse = scalar(backend, kWeightInverse);
  backend.ops->run(LinearBwdData{.dy = dy.view(),
                                 .weight = weight.view(),
                                 .saved = activation == Activation::kNone ? View() : at.view(),
                                 .dx = dx.view(),
                                 .dbias_below = dbias.view(),
                                 .activation = activation,
                                 .accumulate = accumulate,
                                 .dy_inverse_scale = dy_inverse.view(),
                                 .weight_inverse_scale = weight_inverse.view(),
                                 .f32_sums = f32_sums});
  return {.dx = dx.floats(), .dbias = dbias.floats()};
}

HostTensor<float> weight_gradient(const TestBackend& backend, const Fp8Case& c, DType io,
                                  const HostTensor<float>& before, Accumulate accumulate,
                                  bool f32_sums = false) {
  const DeviceTensor dy(backend, c.gradient, transposed(c.dy));
  const DeviceTensor x(backend, DType::kE4M3, transposed(c.x));
  const DeviceTensor dweight(backend, io, before);
  const DeviceTensor dy_inverse = scalar(backend, kDyInverse);
  const DeviceTensor x_inverse = scalar(backend, kXInverse);
  backend.ops->run(LinearBwdWeight{.dy = dy.view(),
                                   .x = x.view(),
                                   .dweight = dweight.view(),
                                   .dbias = View(),
                                   .accumulate = accumulate,
                                   .dy_inverse_scale = dy_inverse.view(),
                                   .x_inverse_scale = x_inverse.view(),
                                   .f32_sums = f32_sums});
  return dweight.floats();
}

double sum_error(float magnitude) {
  return tolerance::kFp8Sum * static_cast<double>(magnitude) + 4 * tolerance::kRoundF32;
}

using CudaLinearFp8 = NeedsSm90a;

TEST_F(CudaLinearFp8, ForwardMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    const Fp8Case c(shape);
    const HostTensor<float> sums =
        forward(cpu(), c.magnitudes(), DType::kF32, nullptr, Activation::kNone).y;
    for (const DType io : kIoTypes) {
      const HostTensor<float> some = rounded_to(io, random_tensor({shape.outputs}, 3));
      for (const HostTensor<float>* bias :
           {static_cast<const HostTensor<float>*>(nullptr), &some}) {
        const HostTensor<float> z = forward(cpu(), c, DType::kF32, bias, Activation::kNone).y;
        for (const Activation activation :
             {Activation::kNone, Activation::kGeluTanh, Activation::kGelu}) {
          const Forward got = forward(gpu(), c, io, bias, activation);
          const Forward want = forward(cpu(), c, DType::kF32, bias, activation);
          const bool gelu = keeps_pre_activation(activation);
          std::vector<double> z_bound, y_bound;
          for (int64_t i = 0; i < z.elements(); ++i) {
            // The GEMM may be rounded before a bias of up to 2 is added.
            const double size = std::abs(static_cast<double>(z[i]));
            z_bound.push_back(sum_error(sums[i]) +
                              rounding(io) * (2 * size + (bias == nullptr ? 0.0 : 2.0)));
            const double function =
                io == DType::kF32 ? tolerance::kGeluF32 : tolerance::kGeluInstruction;
            y_bound.push_back(tolerance::kGeluDerivative * z_bound.back() +
                              (gelu ? function * std::max(1.0, size) : 0.0) +
                              rounding(io) * std::abs(static_cast<double>(want.y[i])));
          }
          const std::string what = concat(text(shape, io), bias == nullptr ? " no bias" : " bias",
                                          " activation ", static_cast<int>(activation));
          expect_within(got.y, want.y, y_bound, "y " + what);
          if (gelu) expect_within(got.z, want.z, z_bound, "pre_activation " + what);
        }
      }
    }
  }
}

// Enough tiles for the algorithms of large GEMMs, in both directions; the last tiles are partial.
TEST_F(CudaLinearFp8, ManyTilesGiveExactSums) {
  const auto make_whole = [](HostTensor<float>& values) {
    for (float& value : values.values) value = std::round(0.75f * value);
  };
  Fp8Case c({5'392, 2'048, 2'048});
  for (HostTensor<float>* values : {&c.x, &c.weight, &c.dy}) make_whole(*values);
  HostTensor<float> bias = random_tensor({c.shape.outputs}, 3);
  make_whole(bias);
  const auto y_of = [&](const TestBackend& backend, DType io) {
    return forward(backend, c, io, &bias, Activation::kNone).y;
  };
  EXPECT_EQ(y_of(gpu(), DType::kBF16).values,
            rounded_to(DType::kBF16, y_of(cpu(), DType::kF32)).values);
  const HostTensor<float> before = garbage_tensor({c.shape.rows, c.shape.inputs});
  const auto dx_of = [&](const TestBackend& backend, DType io) {
    return data_gradient(backend, c, io, before, before, Activation::kNone, Accumulate::kNo).dx;
  };
  EXPECT_EQ(dx_of(gpu(), DType::kBF16).values,
            rounded_to(DType::kBF16, dx_of(cpu(), DType::kF32)).values);
}

TEST_F(CudaLinearFp8, DataGradientMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType gradient : kGradients) {
      const Fp8Case c(shape, gradient);
      const HostTensor<float> nothing = garbage_tensor({shape.rows, shape.inputs});
      const auto plain = [&](const Fp8Case& of) {
        return data_gradient(cpu(), of, DType::kF32, nothing, nothing, Activation::kNone,
                             Accumulate::kNo)
            .dx;
      };
      const HostTensor<float> sums = plain(c.magnitudes());
      const HostTensor<float> product = plain(c);
      for (const DType io : kIoTypes) {
        const HostTensor<float> before =
            rounded_to(io, random_tensor({shape.rows, shape.inputs}, 5));
        const auto expect = [&](Activation activation, Accumulate accumulate) {
          const bool adds = accumulate == Accumulate::kYes;
          const auto run = [&](const TestBackend& backend, DType type) {
            return data_gradient(backend, c, type, adds ? before : nothing, before, activation,
                                 accumulate);
          };
          const DataAndBias got = run(gpu(), io);
          const HostTensor<float> want = run(cpu(), DType::kF32).dx;
          std::vector<double> bound;
          for (int64_t i = 0; i < want.elements(); ++i) {
            const double size = std::abs(static_cast<double>(product[i]));
            const double function = activation == Activation::kNone ? 0.0
                                    : io == DType::kF32             ? 4 * tolerance::kGeluF32
                                                        : 4 * tolerance::kGeluInstruction;
            bound.push_back(
                tolerance::kGeluDerivative * (sum_error(sums[i]) + rounding(io) * size) +
                function * size + rounding(io) * std::abs(static_cast<double>(want[i])));
          }
          const std::string what = concat(name(gradient), " to ", text(shape, io), " activation ",
                                          static_cast<int>(activation), adds ? " add" : "");
          expect_within(got.dx, want, bound, "dx " + what);
          expect_column_sums(got, garbage_tensor({shape.inputs}), Accumulate::kNo, io, what);
        };
        expect(Activation::kNone, Accumulate::kNo);
        expect(Activation::kNone, Accumulate::kYes);
        expect(Activation::kGeluTanh, Accumulate::kNo);
        expect(Activation::kGelu, Accumulate::kNo);
      }
    }
  }
}

TEST_F(CudaLinearFp8, WeightGradientMatchesTheReference) {
  const TestBackend fast = make_gpu({.fp8_fast_wgrad = true});
  for (const Shape& shape : kShapes) {
    for (const DType gradient : kGradients) {
      const Fp8Case c(shape, gradient);
      const HostTensor<float> nothing = garbage_tensor({shape.outputs, shape.inputs});
      const HostTensor<float> sums =
          weight_gradient(cpu(), c.magnitudes(), DType::kF32, nothing, Accumulate::kNo);
      for (const DType io : kIoTypes) {
        for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
          const bool adds = accumulate == Accumulate::kYes;
          const HostTensor<float> before =
              adds ? rounded_to(io, random_tensor({shape.outputs, shape.inputs}, 7)) : nothing;
          const HostTensor<float> want = weight_gradient(cpu(), c, DType::kF32, before, accumulate);
          std::vector<double> bound;
          for (int64_t i = 0; i < want.elements(); ++i) {
            bound.push_back(sum_error(sums[i]) +
                            sum_rounding(io, want[i], adds ? before[i] : 0.0f));
          }
          for (const TestBackend* backend : {&gpu(), &fast}) {
            expect_within(weight_gradient(*backend, c, io, before, accumulate), want, bound,
                          concat("dweight ", name(gradient), " to ", text(shape, io),
                                 adds ? " add" : "", backend == &fast ? " fast" : ""));
          }
        }
      }
    }
  }
}

/// Sums of 14 bits lose products of 2^-15 next to one of 1; sums in f32 lose at most those that
/// were added to it in the tensor cores, which are far fewer than 512.
TEST_F(CudaLinearFp8, SumsInF32KeepSmallProductsNextToALargeOne) {
  constexpr int64_t kProducts = 4096;
  const TestBackend fast = make_gpu({.fp8_fast_wgrad = true});
  const auto expect_sum = [](float found, float inverse_scales, const char* what) {
    const double want = 1 + (kProducts - 1) * 0x1p-15;
    EXPECT_NEAR(static_cast<double>(found / inverse_scales), want, 512 * 0x1p-15) << what;
  };
  Fp8Case rows({16, 16, kProducts});
  Fp8Case columns({kProducts, 16, 16});
  for (Fp8Case* c : {&rows, &columns}) {
    for (HostTensor<float>* ones : {&c->x, &c->weight}) std::ranges::fill(ones->values, 1.0f);
    std::ranges::fill(c->dy.values, 0x1p-15f);
    c->dy[0] = 1.0f;
  }
  const HostTensor<float> before = garbage_tensor({16, 16});
  expect_sum(data_gradient(fast, rows, DType::kF32, before, before, Activation::kNone,
                           Accumulate::kNo, true)
                 .dx[0],
             kDyInverse * kWeightInverse, "dx");
  expect_sum(weight_gradient(fast, columns, DType::kF32, before, Accumulate::kNo, true)[0],
             kDyInverse * kXInverse, "dweight");
}

TEST_F(CudaLinearFp8, NoRowsGiveNoGradient) {
  const HostTensor<float> before({32, 16}, 2.0f);
  const Fp8Case c({0, 16, 32});
  EXPECT_EQ(weight_gradient(gpu(), c, DType::kBF16, before, Accumulate::kYes).values,
            before.values);
  EXPECT_EQ(weight_gradient(gpu(), c, DType::kBF16, before, Accumulate::kNo).values,
            HostTensor<float>({32, 16}).values);
  EXPECT_TRUE(forward(gpu(), c, DType::kBF16, nullptr, Activation::kNone).y.values.empty());
}

TEST_F(CudaLinearFp8, WhatIsNoMultipleOf16IsNamed) {
  const auto message = [](const Shape& shape) -> std::string {
    try {
      forward(gpu(), Fp8Case(shape), DType::kBF16, nullptr, Activation::kNone);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({8, 16, 16}).find("linear_fwd: T = 8, want a multiple of 16"),
            std::string::npos);
  EXPECT_NE(message({16, 24, 16}).find("K = 24"), std::string::npos);
  EXPECT_NE(message({16, 16, 40}).find("N = 40"), std::string::npos);

  const DeviceTensor x(gpu(), DType::kE4M3, HostTensor<float>({16, 16}), 8);
  const DeviceTensor weight(gpu(), DType::kE4M3, HostTensor<float>({16, 16}));
  const DeviceTensor y(gpu(), DType::kF16, HostTensor<float>({16, 16}));
  const DeviceTensor scale = scalar(gpu(), 1.0f);
  try {
    gpu().ops->run(LinearFwd{.x = x.view(),
                             .weight = weight.view(),
                             .bias = View(),
                             .y = y.view(),
                             .pre_activation = View(),
                             .x_inverse_scale = scale.view(),
                             .weight_inverse_scale = scale.view()});
    FAIL() << "accepted an address that is no multiple of 16";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("linear_fwd: x is e4m3 [16,16]"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bertha::testing
