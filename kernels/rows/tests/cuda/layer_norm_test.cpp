#include "kernels/rows/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/cuda/row_gpu.h"
#include "kernels/rows/tests/naive_layer_norm.h"

namespace bertha::testing {
namespace {

constexpr float kEpsilon = 0.0625f;
constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {0, 5},    {1, 1},     {7, 3},   {511, 33}, {33, 40}, {67, 1024}, {5, 1023}, {13, 768},
    {19, 256}, {300, 100}, {37, 96}, {21, 184}, {9, 320}, {3, 4104},  {2, 8200}, {2, 9001}};

/// Parameters of x's dtype, and f32 next to 16 bits.
std::vector<std::pair<DType, DType>> io_and_parameter_types() {
  std::vector<std::pair<DType, DType>> types;
  for (const DType io : kIoTypes) {
    types.emplace_back(io, io);
    if (io != DType::kF32) types.emplace_back(io, DType::kF32);
  }
  return types;
}

TEST(GpuLayerNorm, ForwardAndBackwardMatchTheDefinition) {
  for (const auto& [io, parameter] : io_and_parameter_types()) {
    for (const auto& [rows, columns] : kShapes) {
      const std::string shape =
          concat(" ", name(io), " [", rows, ",", columns, "], parameters ", name(parameter));
      const HostTensor<float> x = rounded_to(io, random_tensor({rows, columns}, 1));
      const HostTensor<float> gamma = rounded_to(parameter, random_tensor({columns}, 2));
      const HostTensor<float> beta = rounded_to(parameter, random_tensor({columns}, 3));
      const HostTensor<float> dy = rounded_to(io, random_tensor({rows, columns}, 4));
      const DeviceTensor x_on(gpu(), io, x);
      const DeviceTensor gamma_on(gpu(), parameter, gamma);
      const DeviceTensor beta_on(gpu(), parameter, beta);
      const DeviceTensor y(gpu(), io, garbage_tensor({rows, columns}));
      const DeviceTensor mean(gpu(), DType::kF32, garbage_tensor({rows}));
      const DeviceTensor rstd(gpu(), DType::kF32, garbage_tensor({rows}));
      gpu().run(LayerNormFwd{.x = x_on.view(),
                             .gamma = gamma_on.view(),
                             .beta = beta_on.view(),
                             .y = y.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .epsilon = kEpsilon});
      const NaiveNormInput input{x.doubles(),     rows,           columns,
                                 gamma.doubles(), beta.doubles(), static_cast<double>(kEpsilon)};
      const NaiveNorm want = naive_layer_norm(input);
      expect_close(y.floats().values, want.y, tolerance::device_row(rounding(io)), "y" + shape,
                   16.0);
      expect_close(mean.floats().values, want.mean, tolerance::kRowF32, "mean" + shape, 2.0);
      expect_close(rstd.floats().values, want.rstd, tolerance::kRowF32, "rstd" + shape);

      const DeviceTensor dx(gpu(), io, dy);  // dx is dy's memory
      const HostTensor<float> before = rounded_to(parameter, random_tensor({columns}, 5));
      const DeviceTensor dgamma(gpu(), parameter, before);
      const DeviceTensor dbeta(gpu(), parameter, garbage_tensor({columns}));
      const DeviceTensor dgamma_alone(gpu(), parameter, garbage_tensor({columns}));
      const DeviceTensor dbeta_added(gpu(), parameter, before);
      const auto backward = [&](const View& to, const View& gamma_sum, const View& beta_sum,
                                Accumulate accumulate) {
        const DeviceTensor dy_on(gpu(), io, dy);
        const bool in_place = to.data == dx.view().data;
        gpu().run(LayerNormBwd{.dy = in_place ? to : dy_on.view(),
                               .x = x_on.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .gamma = gamma_on.view(),
                               .dx = to,
                               .dgamma = gamma_sum,
                               .dbeta = beta_sum,
                               .accumulate = accumulate});
        gpu().wait();
      };
      const DeviceTensor dx_apart(gpu(), io, garbage_tensor({rows, columns}));
      backward(dx_apart.view(), dgamma.view(), dbeta_added.view(), Accumulate::kYes);
      backward(dx.view(), dgamma_alone.view(), dbeta.view(), Accumulate::kNo);

      const NaiveNormGradient gradient = naive_layer_norm_backward(input, dy.doubles());
      const double stored = tolerance::device_row_gradient(rounding(io));
      expect_close(dx.floats().values, gradient.dx, stored, "dx" + shape, 16.0);
      EXPECT_EQ(dx.floats().values, dx_apart.floats().values) << shape;
      Doubles dgamma_want = gradient.dgamma;
      Doubles dbeta_want = gradient.dbeta;
      const double summed = tolerance::device_sum(rounding(parameter), rows);
      const double terms = 2.0 + 4.0 * static_cast<double>(rows);
      expect_close(dgamma_alone.floats().values, dgamma_want, summed, "dgamma" + shape, terms);
      expect_close(dbeta.floats().values, dbeta_want, summed, "dbeta" + shape, terms);
      for (int64_t i = 0; i < columns; ++i) {
        dgamma_want[static_cast<size_t>(i)] += static_cast<double>(before[i]);
        dbeta_want[static_cast<size_t>(i)] += static_cast<double>(before[i]);
      }
      expect_close(dgamma.floats().values, dgamma_want, summed, "dgamma added" + shape, terms);
      expect_close(dbeta_added.floats().values, dbeta_want, summed, "dbeta added" + shape, terms);
    }
  }
}

}  // namespace
}  // namespace bertha::testing
