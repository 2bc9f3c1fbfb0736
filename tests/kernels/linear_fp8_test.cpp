#include <gtest/gtest.h>

#include "kernels/base/fp8.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/linear.h"

namespace bertha {
namespace {

constexpr int64_t kInputs = 24;
constexpr int64_t kOutputs = 40;
constexpr float kXInverse = 0.5f;
constexpr float kWeightInverse = 0.3f;  // any f32 is a scale here
constexpr float kDyInverse = 4.0f;

template <class Q>
Q rounded(float value) {
  if constexpr (std::is_same_v<Q, Fp8E4M3>) return to_e4m3(static_cast<double>(value));
  if constexpr (std::is_same_v<Q, Fp8E5M2>) return to_e5m2(static_cast<double>(value));
}

/// A matrix of fp8 in both layouts, and what it stands for.
template <class Q>
struct Matrix {
  Matrix(int64_t rows, int64_t columns_in, uint32_t seed, float inverse_scale_in)
      : columns(columns_in), q({rows, columns}), transposed({columns, rows}), scale({1}) {
    scale[0] = inverse_scale_in;
    const HostTensor<float> values = random_tensor({rows, columns}, seed);
    for (int64_t i = 0; i < values.elements(); ++i) {
      q[i] = rounded<Q>(values[i]);
      transposed[i % columns * rows + i / columns] = q[i];
    }
  }
  double at(int64_t row, int64_t column) const {
    return static_cast<double>(to_float(q[row * columns + column])) * static_cast<double>(scale[0]);
  }

  int64_t columns;
  HostTensor<Q> q, transposed;
  HostTensor<float> scale;
};

template <class Gradient>
class LinearFp8 : public ::testing::Test {};
using Gradients = ::testing::Types<Fp8E4M3, Fp8E5M2>;
TYPED_TEST_SUITE(LinearFp8, Gradients);

TYPED_TEST(LinearFp8, MatchesTheDefinitionOnDequantizedMatrices) {
  for (const int64_t rows : {0, 1, 7, 33}) {
    Matrix<Fp8E4M3> x(rows, kInputs, 1, kXInverse);
    Matrix<Fp8E4M3> weight(kOutputs, kInputs, 2, kWeightInverse);
    Matrix<TypeParam> dy(rows, kOutputs, 3, kDyInverse);
    HostTensor<float> bias = random_tensor({kOutputs}, 4);
    HostTensor<float> y = garbage_tensor({rows, kOutputs});
    HostTensor<float> dx = random_tensor({rows, kInputs}, 5);
    HostTensor<float> dweight = random_tensor({kOutputs, kInputs}, 6);
    std::vector<double> want_y, want_dx = dx.doubles(), want_dweight = dweight.doubles();
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t n = 0; n < kOutputs; ++n) {
        double sum = static_cast<double>(bias[n]);
        for (int64_t k = 0; k < kInputs; ++k) {
          sum += x.at(t, k) * weight.at(n, k);
          want_dx[static_cast<size_t>(t * kInputs + k)] += dy.at(t, n) * weight.at(n, k);
          want_dweight[static_cast<size_t>(n * kInputs + k)] += dy.at(t, n) * x.at(t, k);
        }
        want_y.push_back(sum);
      }
    }
    run_on_cpu(LinearFwd{.x = x.q.view(),
                         .weight = weight.q.view(),
                         .bias = bias.view(),
                         .y = y.view(),
                         .pre_activation = View(),
                         .x_inverse_scale = x.scale.view(),
                         .weight_inverse_scale = weight.scale.view()});
    run_on_cpu(LinearBwdData{.dy = dy.q.view(),
                             .weight = weight.transposed.view(),
                             .saved = View(),
                             .dx = dx.view(),
                             .accumulate = Accumulate::kYes,
                             .dy_inverse_scale = dy.scale.view(),
                             .weight_inverse_scale = weight.scale.view()});
    run_on_cpu(LinearBwdWeight{.dy = dy.transposed.view(),
                               .x = x.transposed.view(),
                               .dweight = dweight.view(),
                               .dbias = View(),
                               .accumulate = Accumulate::kYes,
                               .dy_inverse_scale = dy.scale.view(),
                               .x_inverse_scale = x.scale.view()});
    // Codes are at most 2; 2 for what a sum is added to, and three roundings of the scale.
    const auto expect = [&](const HostTensor<float>& got, const std::vector<double>& want,
                            int64_t terms, double scale, const char* what) {
      expect_close(got.values, want, tolerance::product_f32(terms) + 3 * tolerance::kRoundF32,
                   concat(what, " of ", rows, " rows"),
                   4 * scale * static_cast<double>(terms) + 2.0);
    };
    expect(y, want_y, kInputs, 0.5 * 0.3, "y");
    expect(dx, want_dx, kOutputs, 4 * 0.3, "dx");
    expect(dweight, want_dweight, rows, 4 * 0.5, "dweight");
  }
}

}  // namespace
}  // namespace bertha
