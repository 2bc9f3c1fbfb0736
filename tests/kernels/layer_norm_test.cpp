#include "kernels/ops/layer_norm.h"

#include <gtest/gtest.h>

#include "kernels/cpu/operations.h"
#include "tests/kernels/backward_checks.h"
#include "tests/kernels/naive_layer_norm.h"
#include "tests/support/expect_close.h"
#include "tests/support/finite_difference.h"

namespace bertha {
namespace {

struct Case {
  Case(int64_t rows_in, int64_t columns_in)
      : rows(rows_in),
        columns(columns_in),
        x(random_tensor({rows, columns}, 1)),
        gamma(random_tensor({columns}, 2)),
        beta(random_tensor({columns}, 3)),
        y(garbage_tensor({rows, columns})),
        mean(garbage_tensor({rows})),
        rstd(garbage_tensor({rows})),
        dy(random_tensor({rows, columns}, 4)),
        dx(garbage_tensor({rows, columns})),
        dgamma(garbage_tensor({columns})),
        dbeta(garbage_tensor({columns})) {}

  void forward(int threads) {
    WorkerPool pool(threads);
    const LayerNormFwd args{.x = x.view(),
                            .gamma = gamma.view(),
                            .beta = beta.view(),
                            .y = y.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .epsilon = epsilon};
    validate(args);
    run_cpu(pool, args);
  }

  void backward(int threads, Accumulate accumulate) {
    WorkerPool pool(threads);
    const LayerNormBwd args{.dy = dy.view(),
                            .x = x.view(),
                            .mean = mean.view(),
                            .rstd = rstd.view(),
                            .gamma = gamma.view(),
                            .dx = dx.view(),
                            .dgamma = dgamma.view(),
                            .dbeta = dbeta.view(),
                            .accumulate = accumulate};
    validate(args);
    run_cpu(pool, args);
  }

  NaiveNormInput naive() const {
    return {x.doubles(),     rows,           columns,
            gamma.doubles(), beta.doubles(), static_cast<double>(epsilon)};
  }

  int64_t rows;
  int64_t columns;
  float epsilon = 0.25f;
  HostTensor<float> x, gamma, beta, y, mean, rstd, dy, dx, dgamma, dbeta;
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 16}, {1, 1},   {7, 33},
                                                   {33, 7}, {5, 511}, {511, 24}};

TEST(LayerNorm, ForwardMatchesTheDefinition) {
  for (const auto& [rows, columns] : kShapes) {
    Case c(rows, columns);
    c.forward(1);
    const NaiveNorm want = naive_layer_norm(c.naive());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    // Largest terms of y: 2 |x| rstd gamma + beta, each below 4 * 2 * 2 + 2.
    expect_close(c.y.values, want.y, tolerance::kRowF32, "y" + shape, 18.0);
    expect_close(c.mean.values, want.mean, tolerance::kRowF32, "mean" + shape, 2.0);
    expect_close(c.rstd.values, want.rstd, tolerance::kRowF32, "rstd" + shape);
  }
}

TEST(LayerNorm, BackwardMatchesTheJacobian) {
  for (const auto& [rows, columns] : kShapes) {
    Case c(rows, columns);
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const NaiveNormGradient want = naive_layer_norm_backward(c.naive(), c.dy.doubles());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    expect_close(c.dx.values, want.dx, tolerance::kRowGradientF32, "dx" + shape, 8.0);
    const double sum_scale = 8.0 + largest_magnitude(want.dgamma);
    expect_close(c.dgamma.values, want.dgamma, tolerance::kRowF32, "dgamma" + shape, sum_scale);
    expect_close(c.dbeta.values, want.dbeta, tolerance::kRowF32, "dbeta" + shape);
  }
}

TEST(LayerNorm, BackwardMatchesFiniteDifferences) {
  Case c(5, 33);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  const auto loss = [&] {
    c.forward(1);
    return weighted_sum(c.y, c.dy);
  };
  expect_gradient("x", c.x, c.dx, loss);
  expect_gradient("gamma", c.gamma, c.dgamma, loss);
  expect_gradient("beta", c.beta, c.dbeta, loss);
}

TEST(LayerNorm, AccumulateAddsToTheParameterGradients) {
  expect_backward_adds(Case(33, 24), {&Case::dgamma, &Case::dbeta});
}

TEST(LayerNorm, InputGradientMayReplaceTheOutputGradient) {
  Case c(7, 33);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  const HostTensor<float> want = c.dx;
  WorkerPool pool(1);
  run_cpu(pool, LayerNormBwd{.dy = c.dy.view(),
                             .x = c.x.view(),
                             .mean = c.mean.view(),
                             .rstd = c.rstd.view(),
                             .gamma = c.gamma.view(),
                             .dx = c.dy.view(),
                             .dgamma = c.dgamma.view(),
                             .dbeta = c.dbeta.view()});
  EXPECT_EQ(c.dy.values, want.values);
}

TEST(LayerNorm, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(511, 33), {&Case::y, &Case::dx, &Case::dgamma, &Case::dbeta});
}

}  // namespace
}  // namespace bertha
