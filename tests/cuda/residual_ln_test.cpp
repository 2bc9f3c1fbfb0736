#include "kernels/ops/residual_ln.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/naive_dropout.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/naive_layer_norm.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr float kEpsilon = 0.0625f;
constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {0, 16},    {1, 8},    {7, 264},  {511, 24}, {33, 40},  {1, 1024}, {9, 1024},
    {67, 1024}, {13, 768}, {11, 512}, {19, 256}, {21, 128}, {3, 4104}, {2, 8192}};

struct Case {
  Case(DType io_in, int64_t tokens_in, int64_t hidden_in, float probability)
      : io(io_in),
        tokens(tokens_in),
        hidden(hidden_in),
        dropout{.probability = probability},
        x(rounded_to(io, random_tensor({tokens, hidden}, 1))),
        bias(rounded_to(io, random_tensor({hidden}, 2))),
        residual(rounded_to(io, random_tensor({tokens, hidden}, 3))),
        gamma(rounded_to(io, random_tensor({hidden}, 4))),
        beta(rounded_to(io, random_tensor({hidden}, 5))),
        dy(rounded_to(io, random_tensor({tokens, hidden}, 6))),
        state(gpu(), dropout.state()),
        sum(gpu(), io, garbage_tensor({tokens, hidden})),
        y(gpu(), io, garbage_tensor({tokens, hidden})),
        mean(gpu(), DType::kF32, garbage_tensor({tokens})),
        rstd(gpu(), DType::kF32, garbage_tensor({tokens})),
        mask(gpu(), HostTensor<uint8_t>({tokens, hidden / 8}, 0x5A)),
        dresidual(gpu(), io, dy),
        dx(gpu(), io, garbage_tensor({tokens, hidden})) {}

  Dropout dropout_args() const {
    return dropout.with(dropout.probability > 0.0f ? state.view() : View());
  }
  View mask_view() const { return dropout.probability > 0.0f ? mask.view() : View(); }

  void forward() {
    const DeviceTensor x_on(gpu(), io, x);
    const DeviceTensor bias_on(gpu(), io, bias);
    const DeviceTensor residual_on(gpu(), io, residual);
    const DeviceTensor gamma_on(gpu(), io, gamma);
    const DeviceTensor beta_on(gpu(), io, beta);
    gpu().ops->run(ResidualLnFwd{.x = x_on.view(),
                                 .bias = bias_on.view(),
                                 .residual = residual_on.view(),
                                 .gamma = gamma_on.view(),
                                 .beta = beta_on.view(),
                                 .sum = sum.view(),
                                 .y = y.view(),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .mask = mask_view(),
                                 .dropout = dropout_args(),
                                 .dropout_rows = dropout_rows,
                                 .epsilon = kEpsilon,
                                 .residual_norm = residual_norm});
    gpu().wait();
  }

  /// dresidual is dy's memory: it holds dy before the call.
  struct Sums {
    HostTensor<float> dgamma, dbeta, dbias;
  };
  Sums backward(Accumulate accumulate, const HostTensor<float>& before) {
    const DeviceTensor gamma_on(gpu(), io, gamma);
    const DeviceTensor dgamma(gpu(), io, before);
    const DeviceTensor dbeta(gpu(), io, before);
    const DeviceTensor dbias(gpu(), io, before);
    gpu().ops->run(ResidualLnBwd{.dy = dresidual.view(),
                                 .sum = sum.view(),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .mask = mask_view(),
                                 .gamma = gamma_on.view(),
                                 .dresidual = dresidual.view(),
                                 .dx = dx.view(),
                                 .dgamma = dgamma.view(),
                                 .dbeta = dbeta.view(),
                                 .dbias = dbias.view(),
                                 .dropout = dropout_args(),
                                 .accumulate = accumulate});
    return {dgamma.floats(), dbeta.floats(), dbias.floats()};
  }

  /// The row sums that the definition gives, before they are rounded.
  Doubles sums() const {
    Doubles values;
    for (int64_t i = 0; i < tokens * hidden; ++i) {
      const double input = static_cast<double>(x[i]) + static_cast<double>(bias[i % hidden]);
      values.push_back(static_cast<double>(residual[i]) + input * dropout.factor(i));
    }
    return values;
  }
  /// LayerNorm of the sums as the device stored them.
  NaiveNormInput naive() const {
    return {sum.floats().doubles(), tokens,         hidden,
            gamma.doubles(),        beta.doubles(), static_cast<double>(kEpsilon)};
  }
  std::string what(const char* name_of) const {
    return concat(name_of, " ", name(io), " [", tokens, ",", hidden, "]");
  }

  DType io;
  int64_t tokens;
  int64_t hidden;
  NaiveDropout dropout;
  View dropout_rows;
  ResidualNorm residual_norm;
  HostTensor<float> x, bias, residual, gamma, beta, dy;
  DeviceTensor state, sum, y, mean, rstd, mask, dresidual, dx;
};

TEST(CudaResidualLn, AResidualComputedAgainHasTheBitsOfTheOneStored) {
  for (const DType io : kIoTypes) {
    for (const auto& [tokens, hidden] : kShapes) {
      Case before(io, tokens, hidden, 0.1f);
      before.gamma = rounded_to(io, random_tensor({hidden}, 41));
      before.beta = rounded_to(io, random_tensor({hidden}, 42));
      before.forward();
      Case stored(io, tokens, hidden, 0.1f);
      stored.residual = before.y.floats();
      stored.forward();
      Case computed(io, tokens, hidden, 0.1f);
      computed.residual = before.sum.floats();
      const DeviceTensor gamma(gpu(), io, before.gamma);
      const DeviceTensor beta(gpu(), io, before.beta);
      computed.residual_norm = {.mean = before.mean.view(),
                                .rstd = before.rstd.view(),
                                .gamma = gamma.view(),
                                .beta = beta.view()};
      computed.forward();
      EXPECT_EQ(computed.sum.floats().values, stored.sum.floats().values) << computed.what("sum");
      EXPECT_EQ(computed.y.floats().values, stored.y.floats().values) << computed.what("y");
    }
  }
}

TEST(CudaResidualLn, ForwardMatchesTheDefinition) {
  for (const DType io : kIoTypes) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [tokens, hidden] : kShapes) {
        Case c(io, tokens, hidden, probability);
        c.forward();
        const double stored = tolerance::device_row(rounding(io));
        expect_close(c.sum.floats().values, c.sums(), stored, c.what("sum"), 7.0);
        const NaiveNorm want = naive_layer_norm(c.naive());
        // Largest terms of y: (2 |sum| + 2) at most.
        expect_close(c.y.floats().values, want.y, stored, c.what("y"), 30.0);
        expect_close(c.mean.floats().values, want.mean, tolerance::kRowF32, c.what("mean"), 7.0);
        expect_close(c.rstd.floats().values, want.rstd, tolerance::kRowF32, c.what("rstd"));
        if (probability > 0.0f) {
          EXPECT_EQ(c.mask.values<uint8_t>().values, c.dropout.mask(tokens, hidden).values)
              << c.what("mask");
        } else {
          EXPECT_EQ(c.mask.values<uint8_t>().values,
                    HostTensor<uint8_t>({tokens, hidden / 8}, 0x5A).values);
        }
      }
    }
  }
}

TEST(CudaResidualLn, GatheredRowsKeepTheirDropout) {
  const std::vector<int32_t> rows{32, -1, 0, 7, 31, 6, 6};
  HostTensor<int32_t> indices({std::ssize(rows)}, 0);
  indices.values = rows;
  const DeviceTensor indices_on(gpu(), indices);
  for (const DType io : kIoTypes) {
    for (const int64_t hidden : {8, 40, 264, 768, 1024, 4104}) {
      Case all(io, 33, hidden, 0.1f);
      all.forward();
      Case some(io, std::ssize(rows), hidden, 0.1f);
      some.dropout_rows = indices_on.view();
      for (int64_t i = 0; i < some.tokens * hidden; ++i) {
        const int64_t from =
            std::max(rows[static_cast<size_t>(i / hidden)], 0) * hidden + i % hidden;
        some.x[i] = all.x[from];
        some.residual[i] = all.residual[from];
      }
      some.forward();
      const HostTensor<float> got = some.y.floats(), want = all.y.floats();
      const HostTensor<uint8_t> got_mask = some.mask.values<uint8_t>();
      const HostTensor<uint8_t> want_mask = all.mask.values<uint8_t>();
      for (int64_t r = 0; r < some.tokens; ++r) {
        const int64_t from = rows[static_cast<size_t>(r)];
        if (from < 0) continue;
        for (int64_t i = 0; i < hidden; ++i) {
          ASSERT_EQ(got[r * hidden + i], want[from * hidden + i]) << some.what("y") << from;
        }
        for (int64_t i = 0; i < hidden / 8; ++i) {
          ASSERT_EQ(got_mask[r * hidden / 8 + i], want_mask[from * hidden / 8 + i])
              << some.what("mask") << from;
        }
      }
    }
  }
}

TEST(CudaResidualLn, BackwardMatchesTheJacobian) {
  for (const DType io : kIoTypes) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [tokens, hidden] : kShapes) {
        Case c(io, tokens, hidden, probability);
        c.forward();
        const NaiveNormInput input = c.naive();
        const NaiveNorm forward = naive_layer_norm(input);
        const NaiveNormGradient want = naive_layer_norm_backward(input, c.dy.doubles());
        const Case::Sums sums = c.backward(Accumulate::kNo, garbage_tensor({hidden}));
        const Doubles dx = c.dropout.of(want.dx);
        Doubles dbias(static_cast<size_t>(hidden), 0.0);
        Doubles bias_terms = dbias;
        Doubles gamma_terms = dbias;
        Doubles beta_terms = dbias;
        for (int64_t i = 0; i < tokens * hidden; ++i) {
          const size_t at = static_cast<size_t>(i);
          const size_t row = static_cast<size_t>(i / hidden);
          const size_t column = static_cast<size_t>(i % hidden);
          dbias[column] += dx[at];
          bias_terms[column] += 1.0 + std::abs(dx[at]);
          const double normalized = (input.x[at] - forward.mean[row]) * forward.rstd[row];
          gamma_terms[column] += std::abs(static_cast<double>(c.dy[i]) * normalized);
          beta_terms[column] += std::abs(static_cast<double>(c.dy[i]));
        }
        const double stored = tolerance::device_row_gradient(rounding(io));
        const double summed = tolerance::device_sum(rounding(io), tokens);
        expect_close(c.dresidual.floats().values, want.dx, stored, c.what("dresidual"), 8.0);
        expect_close(c.dx.floats().values, dx, stored, c.what("dx"), 8.0);
        expect_close(sums.dgamma.values, want.dgamma, summed, c.what("dgamma"),
                     1 + largest_magnitude(gamma_terms));
        expect_close(sums.dbeta.values, want.dbeta, summed, c.what("dbeta"),
                     1 + largest_magnitude(beta_terms));
        expect_close(sums.dbias.values, dbias, summed, c.what("dbias"),
                     1 + largest_magnitude(bias_terms));
      }
    }
  }
}

TEST(CudaResidualLn, AccumulateAddsToTheParameterGradients) {
  for (const DType io : kIoTypes) {
    for (const int64_t hidden : {24, 1024}) {
      Case once(io, 37, hidden, 0.1f);
      Case twice(io, 37, hidden, 0.1f);
      once.forward();
      twice.forward();
      const Case::Sums sums = once.backward(Accumulate::kNo, garbage_tensor({hidden}));
      const Case::Sums added = twice.backward(Accumulate::kYes, HostTensor<float>({hidden}, 4.0f));
      const auto expect_added = [&](const HostTensor<float>& all, const HostTensor<float>& one) {
        Doubles want = one.doubles();
        for (double& value : want) value += 4.0;
        // Stored once with the 4 and once without.
        expect_close(all.values, want, 2 * rounding(io), "gradient", 64.0);
      };
      expect_added(added.dgamma, sums.dgamma);
      expect_added(added.dbeta, sums.dbeta);
      expect_added(added.dbias, sums.dbias);
    }
  }
}

TEST(CudaResidualLn, RepeatsBitForBit) {
  Case one(DType::kBF16, 4097, 1024, 0.1f);
  Case two(DType::kBF16, 4097, 1024, 0.1f);
  one.forward();
  two.forward();
  EXPECT_EQ(one.y.floats().values, two.y.floats().values);
  const HostTensor<float> before({1024}, 1.0f);
  const Case::Sums first = one.backward(Accumulate::kYes, before);
  const Case::Sums second = two.backward(Accumulate::kYes, before);
  EXPECT_EQ(one.dx.floats().values, two.dx.floats().values);
  EXPECT_EQ(first.dgamma.values, second.dgamma.values);
  EXPECT_EQ(first.dbeta.values, second.dbeta.values);
  EXPECT_EQ(first.dbias.values, second.dbias.values);
}

}  // namespace
}  // namespace bertha::testing
