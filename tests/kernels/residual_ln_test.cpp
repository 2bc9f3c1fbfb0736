#include "kernels/ops/residual_ln.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/naive_dropout.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/rows/tests/naive_layer_norm.h"

namespace bertha {
namespace {

struct Case {
  Case(int64_t tokens_in, int64_t hidden_in) : tokens(tokens_in), hidden(hidden_in) {}

  void forward(int threads) {
    run_on_cpu(ResidualLnFwd{.x = x.view(),
                             .bias = bias.view(),
                             .residual = residual.view(),
                             .gamma = gamma.view(),
                             .beta = beta.view(),
                             .sum = sum.view(),
                             .y = y.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .mask = mask.view(),
                             .dropout = dropout.with(state.view()),
                             .dropout_rows = dropout_rows.view(),
                             .epsilon = epsilon,
                             .y_fp8 = y_fp8,
                             .residual_norm = residual_norm},
               threads);
  }

  void backward(int threads, Accumulate accumulate) {
    run_on_cpu(ResidualLnBwd{.dy = dy.view(),
                             .sum = sum.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .mask = mask.view(),
                             .gamma = gamma.view(),
                             .dresidual = dresidual.view(),
                             .dx = dx.view(),
                             .dgamma = dgamma.view(),
                             .dbeta = dbeta.view(),
                             .dbias = dbias.view(),
                             .dropout = dropout.with(state.view()),
                             .accumulate = accumulate},
               threads);
  }

  NaiveNormInput naive() const {
    Doubles sums;
    for (int64_t i = 0; i < tokens * hidden; ++i) {
      const double input = static_cast<double>(x[i]) + static_cast<double>(bias[i % hidden]);
      sums.push_back(static_cast<double>(residual[i]) + input * dropout.factor(i));
    }
    return {sums, tokens, hidden, gamma.doubles(), beta.doubles(), static_cast<double>(epsilon)};
  }

  int64_t tokens;
  int64_t hidden;
  float epsilon = 0.125f;
  Fp8Result y_fp8{};
  ResidualNorm residual_norm{};
  NaiveDropout dropout{.site = 21, .probability = 0.2f};
  HostTensor<uint64_t> state = dropout.state();
  HostTensor<int32_t> dropout_rows{};
  HostTensor<float> x = random_tensor({tokens, hidden}, 1);
  HostTensor<float> bias = random_tensor({hidden}, 2);
  HostTensor<float> residual = random_tensor({tokens, hidden}, 3);
  HostTensor<float> gamma = random_tensor({hidden}, 4);
  HostTensor<float> beta = random_tensor({hidden}, 5);
  HostTensor<float> sum = garbage_tensor({tokens, hidden});
  HostTensor<float> y = garbage_tensor({tokens, hidden});
  HostTensor<float> mean = garbage_tensor({tokens});
  HostTensor<float> rstd = garbage_tensor({tokens});
  HostTensor<uint8_t> mask = HostTensor<uint8_t>({tokens, hidden / 8}, 0xA5);
  HostTensor<float> dy = random_tensor({tokens, hidden}, 6);
  HostTensor<float> dresidual = garbage_tensor({tokens, hidden});
  HostTensor<float> dx = garbage_tensor({tokens, hidden});
  HostTensor<float> dgamma = garbage_tensor({hidden});
  HostTensor<float> dbeta = garbage_tensor({hidden});
  HostTensor<float> dbias = garbage_tensor({hidden});
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 16}, {1, 8}, {7, 264}, {33, 40}, {511, 24}};

TEST(ResidualLn, ForwardMatchesTheDefinition) {
  for (const auto& [tokens, hidden] : kShapes) {
    Case c(tokens, hidden);
    c.forward(1);
    const NaiveNormInput input = c.naive();
    const NaiveNorm want = naive_layer_norm(input);
    const std::string shape = concat(" at [", tokens, ",", hidden, "]");
    expect_close(c.sum.values, input.x, tolerance::kRowF32, "sum" + shape, 7.0);
    // Largest terms of y: 2 |sum| rstd gamma + beta, below 14 * 1 * 2 + 2.
    expect_close(c.y.values, want.y, tolerance::kRowF32, "y" + shape, 30.0);
    expect_close(c.mean.values, want.mean, tolerance::kRowF32, "mean" + shape, 7.0);
    expect_close(c.rstd.values, want.rstd, tolerance::kRowF32, "rstd" + shape);
  }
}

TEST(ResidualLn, AResidualComputedAgainHasTheBitsOfTheOneStored) {
  for (const auto& [tokens, hidden] : kShapes) {
    Case before(tokens, hidden);
    before.gamma = random_tensor({hidden}, 41);
    before.beta = random_tensor({hidden}, 42);
    before.forward(1);
    Case stored(tokens, hidden);
    stored.residual = before.y;
    stored.forward(1);
    Case computed(tokens, hidden);
    computed.residual = before.sum;
    computed.residual_norm = {.mean = before.mean.view(),
                              .rstd = before.rstd.view(),
                              .gamma = before.gamma.view(),
                              .beta = before.beta.view()};
    computed.forward(2);
    EXPECT_EQ(computed.sum.values, stored.sum.values);
    EXPECT_EQ(computed.y.values, stored.y.values);
  }
}

TEST(ResidualLn, GatheredRowsKeepTheirDropout) {
  for (const int64_t hidden : {int64_t{8}, int64_t{40}, int64_t{264}}) {
    Case all(33, hidden);
    all.forward(1);
    const std::vector<int32_t> rows{32, -1, 0, 7, 31};
    Case some(std::ssize(rows), hidden);
    some.dropout_rows = HostTensor<int32_t>({some.tokens}, 0);
    some.dropout_rows.values = rows;
    for (int64_t i = 0; i < some.tokens * hidden; ++i) {
      const int64_t from = std::max(rows[static_cast<size_t>(i / hidden)], 0) * hidden + i % hidden;
      some.x[i] = all.x[from];
      some.residual[i] = all.residual[from];
    }
    some.forward(3);
    for (int64_t r = 0; r < some.tokens; ++r) {
      const int64_t from = rows[static_cast<size_t>(r)];
      if (from < 0) continue;
      for (int64_t i = 0; i < hidden; ++i) {
        ASSERT_EQ(some.sum[r * hidden + i], all.sum[from * hidden + i]) << from << ", " << i;
        ASSERT_EQ(some.y[r * hidden + i], all.y[from * hidden + i]) << from << ", " << i;
      }
      for (int64_t i = 0; i < hidden / 8; ++i) {
        ASSERT_EQ(some.mask[r * hidden / 8 + i], all.mask[from * hidden / 8 + i]) << from;
      }
    }
  }
}

TEST(ResidualLn, RoundsItsResultInAdditionToIo) {
  struct Rounded {
    HostTensor<uint8_t> q = HostTensor<uint8_t>({33, 40}, 0xAA);
    HostTensor<float> scale = HostTensor<float>({1}, 512.0f);  // too large for some elements
    HostTensor<float> amax = HostTensor<float>({1}, 0.125f);
    HostTensor<int64_t> saturated = HostTensor<int64_t>({1}, 5);
    HostTensor<int32_t> live_rows = HostTensor<int32_t>({1}, 31);

    Fp8Result result() {
      View bytes = q.view();
      bytes.dtype = DType::kE4M3;
      return {.q = bytes,
              .scale = scale.view(),
              .amax = amax.view(),
              .saturated = saturated.view(),
              .live_rows = live_rows.view()};
    }
  };
  Case without(33, 40);
  without.forward(1);
  Rounded want;
  run_on_cpu(quantize_to(want.result(), without.y.view()));
  Case with(33, 40);
  Rounded got;
  with.y_fp8 = got.result();
  with.forward(1);
  EXPECT_EQ(with.y.values, without.y.values);
  EXPECT_EQ(got.q.values, want.q.values);
  EXPECT_EQ(got.amax.values, want.amax.values);
  EXPECT_EQ(got.saturated.values, want.saturated.values);
  EXPECT_GT(got.saturated[0], 5);
}

TEST(ResidualLn, BackwardMatchesTheJacobian) {
  for (const auto& [tokens, hidden] : kShapes) {
    Case c(tokens, hidden);
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const NaiveNormGradient want = naive_layer_norm_backward(c.naive(), c.dy.doubles());
    const Doubles dx = c.dropout.of(want.dx);
    Doubles dbias(static_cast<size_t>(hidden), 0.0);
    for (size_t i = 0; i < dx.size(); ++i) dbias[i % dbias.size()] += dx[i];
    const std::string shape = concat(" at [", tokens, ",", hidden, "]");
    const double scale = 8.0;
    expect_close(c.dresidual.values, want.dx, tolerance::kRowGradientF32, "dresidual" + shape,
                 scale);
    expect_close(c.dx.values, dx, tolerance::kRowGradientF32, "dx" + shape, scale);
    expect_close(c.dbias.values, dbias, tolerance::kRowGradientF32, "dbias" + shape,
                 scale + largest_magnitude(dbias));
    expect_close(c.dgamma.values, want.dgamma, tolerance::kRowF32, "dgamma" + shape,
                 scale + largest_magnitude(want.dgamma));
    expect_close(c.dbeta.values, want.dbeta, tolerance::kRowF32, "dbeta" + shape);
  }
}

TEST(ResidualLn, BackwardMatchesFiniteDifferences) {
  expect_finite_differences(Case(5, 24), {{"x", &Case::x, &Case::dx},
                                          {"bias", &Case::bias, &Case::dbias},
                                          {"residual", &Case::residual, &Case::dresidual},
                                          {"gamma", &Case::gamma, &Case::dgamma},
                                          {"beta", &Case::beta, &Case::dbeta}});
}

TEST(ResidualLn, DropsExactlyTheDocumentedElements) {
  Case c(511, 264);
  c.residual.values.assign(c.residual.values.size(), 0.0f);
  c.bias.values.assign(c.bias.values.size(), 3.0f);  // x + bias is at least 1
  c.forward(1);
  for (int64_t i = 0; i < c.sum.elements(); ++i) {
    const bool want = c.dropout.drops(i);
    ASSERT_EQ(c.sum[i] == 0.0f, want) << "element " << i;
    ASSERT_EQ(((c.mask[i / 8] >> (i % 8)) & 1) == 0, want) << "bit " << i;
  }
}

TEST(ResidualLn, ProbabilityZeroNeedsNoRandomState) {
  Case c(3, 8);
  c.state.values.clear();
  c.mask.values.clear();
  c.dropout.probability = 0.0f;
  c.forward(1);
  for (int64_t i = 0; i < c.sum.elements(); ++i) {
    EXPECT_EQ(c.sum[i], c.residual[i] + (c.x[i] + c.bias[i % 8]));
  }
}

TEST(ResidualLn, AccumulateAddsToTheParameterGradients) {
  expect_backward_adds(Case(33, 24), {&Case::dgamma, &Case::dbeta, &Case::dbias});
}

TEST(ResidualLn, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(511, 40), {&Case::y, &Case::dresidual, &Case::dx, &Case::dgamma,
                                          &Case::dbeta, &Case::dbias});
}

}  // namespace
}  // namespace bertha
