#include "kernels/rows/ops/batch_norm_relu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/finite_difference.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/ops/check_channels.h"
#include "kernels/rows/tests/channels_golden.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha::testing {
namespace {

constexpr float kEpsilon = 0.0625f;
constexpr float kMomentum = 0.25f;

struct Case {
  Case(const ChannelsExtents& extents, bool has_addend_in, NormStatistics statistics_in)
      : e(extents), has_addend(has_addend_in), statistics(statistics_in) {
    for (float& value : running_var.values) value = std::abs(value) + 0.5f;
  }

  BatchNormReluFwd forward_args() {
    return {.x = x.view(),
            .addend = has_addend ? addend.view() : View(),
            .gamma = gamma.view(),
            .beta = beta.view(),
            .running_mean = new_mean.view(),
            .running_var = new_var.view(),
            .y = y.view(),
            .mask = mask.view(),
            .mean = mean.view(),
            .rstd = rstd.view(),
            .statistics = statistics,
            .momentum = momentum,
            .epsilon = epsilon};
  }
  BatchNormReluBwd backward_args() {
    return {.dy = dy.view(),
            .x = x.view(),
            .mask = mask.view(),
            .mean = mean.view(),
            .rstd = rstd.view(),
            .gamma = gamma.view(),
            .dx = dx.view(),
            .daddend = has_addend ? daddend.view() : View(),
            .dgamma = dgamma.view(),
            .dbeta = dbeta.view(),
            .statistics = statistics};
  }
  void forward(int threads) {
    // A copy, so that a case may run forward more than once.
    new_mean = running_mean;
    new_var = running_var;
    run_on_cpu(forward_args(), threads);
  }
  void backward(int threads, Accumulate accumulate) {
    BatchNormReluBwd args = backward_args();
    args.accumulate = accumulate;
    run_on_cpu(args, threads);
  }

  bool is_batch() const { return statistics == NormStatistics::kBatch; }
  bool bit(int64_t i) const { return (mask[i / 8] >> (i % 8) & 1) != 0; }
  std::string text() const {
    return concat(e.text(), has_addend ? ", addend" : "", is_batch() ? "" : ", inference");
  }
  /// mean and rstd as the definition has them.
  NaiveBatchNorm naive() const {
    NaiveBatchNorm norm{e, x.doubles(), gamma.doubles(), running_mean.doubles(), {}};
    Doubles variance = running_var.doubles();
    if (is_batch()) {
      const NaiveMoments moments = naive_moments(e, norm.x);
      norm.mean = moments.mean;
      variance = moments.variance;
    }
    for (const double value : variance) {
      norm.rstd.push_back(1.0 / std::sqrt(value + static_cast<double>(epsilon)));
    }
    return norm;
  }

  ChannelsExtents e;
  bool has_addend;
  NormStatistics statistics;
  float momentum = kMomentum;
  float epsilon = kEpsilon;
  HostTensor<float> x = random_tensor({e.outer, e.channels, e.inner}, 1);
  HostTensor<float> addend = random_tensor({e.outer, e.channels, e.inner}, 2);
  HostTensor<float> gamma = random_tensor({e.channels}, 3);
  HostTensor<float> beta = random_tensor({e.channels}, 4);
  HostTensor<float> running_mean = random_tensor({e.channels}, 5);
  HostTensor<float> running_var = random_tensor({e.channels}, 6);
  HostTensor<float> new_mean, new_var;
  HostTensor<float> y = garbage_tensor({e.outer, e.channels, e.inner});
  HostTensor<uint8_t> mask = HostTensor<uint8_t>({bit_bytes(e.elements())}, 0xA5);
  HostTensor<float> mean = garbage_tensor({e.channels});
  HostTensor<float> rstd = garbage_tensor({e.channels});
  HostTensor<float> dy = random_tensor({e.outer, e.channels, e.inner}, 7);
  HostTensor<float> dx = garbage_tensor({e.outer, e.channels, e.inner});
  HostTensor<float> daddend = garbage_tensor({e.outer, e.channels, e.inner});
  HostTensor<float> dgamma = garbage_tensor({e.channels});
  HostTensor<float> dbeta = garbage_tensor({e.channels});
};

std::vector<Case> all_cases(const ChannelsExtents& e) {
  return {Case(e, false, NormStatistics::kBatch), Case(e, true, NormStatistics::kBatch),
          Case(e, false, NormStatistics::kRunning), Case(e, true, NormStatistics::kRunning)};
}

/// Largest terms of y: |x - mean| rstd gamma + beta + addend, below 4 * 4 * 2 + 2 + 2.
constexpr double kLargestTerms = 36.0;

TEST(BatchNormRelu, ForwardMatchesTheDefinition) {
  for (const ChannelsExtents& e : kChannelsExtents) {
    if (e.elements() == 0) continue;
    for (Case& c : all_cases(e)) {
      c.forward(2);
      const NaiveBatchNorm naive = c.naive();
      Doubles want = naive.forward(c.beta.doubles(), c.has_addend ? c.addend.doubles() : Doubles());
      for (double& value : want) value = std::max(value, 0.0);
      expect_close(c.y.values, want, tolerance::kRowF32, "y" + c.text(), kLargestTerms);
      expect_close(c.mean.values, naive.mean, tolerance::kRowF32, "mean" + c.text(), 2.0);
      expect_close(c.rstd.values, naive.rstd, tolerance::kRowF32, "rstd" + c.text());
    }
  }
}

TEST(BatchNormRelu, MaskSaysWhereTheOutputIsNotZero) {
  for (const ChannelsExtents& e : kChannelsExtents) {
    for (Case& c : all_cases(e)) {
      c.forward(3);
      for (int64_t i = 0; i < c.mask.elements() * 8; ++i) {
        const bool want = i < e.elements() && c.y[i] != 0.0f;
        ASSERT_EQ(c.bit(i), want) << "bit " << i << c.text();
      }
    }
  }
}

TEST(BatchNormRelu, RunningStatisticsMoveByTheMomentum) {
  for (const ChannelsExtents& e : kChannelsExtents) {
    Case c(e, false, NormStatistics::kBatch);
    c.forward(1);
    const auto count = static_cast<double>(e.outer * e.inner);
    if (e.elements() == 0) {
      EXPECT_EQ(c.new_mean.values, c.running_mean.values) << c.text();
      EXPECT_EQ(c.new_var.values, c.running_var.values) << c.text();
      continue;
    }
    const NaiveMoments moments = naive_moments(e, c.x.doubles());
    Doubles mean = c.running_mean.doubles();
    Doubles variance = c.running_var.doubles();
    for (int64_t i = 0; i < e.channels; ++i) {
      at(mean, i) += 0.25 * (at(moments.mean, i) - at(mean, i));
      if (count == 1.0) continue;  // stays
      const double unbiased = at(moments.variance, i) * count / (count - 1.0);
      at(variance, i) += 0.25 * (unbiased - at(variance, i));
    }
    expect_close(c.new_mean.values, mean, tolerance::kRowF32, "mean" + c.text(), 2.0);
    expect_close(c.new_var.values, variance, tolerance::kRowF32, "variance" + c.text(), 4.0);
  }
}

TEST(BatchNormRelu, BackwardMatchesTheJacobian) {
  for (const ChannelsExtents& e : kChannelsExtents) {
    for (Case& c : all_cases(e)) {
      c.forward(2);
      c.backward(2, Accumulate::kNo);
      std::vector<bool> ones;
      for (int64_t i = 0; i < e.elements(); ++i) ones.push_back(c.bit(i));
      const NaiveBatchNormGradient want =
          naive_batch_norm_backward(c.naive(), c.dy.doubles(), ones, c.is_batch());
      // gamma * rstd * (g - mean - n * mean): below 2 * 4 * (2 + 2 + 8 * 4).
      expect_close(c.dx.values, want.dx, tolerance::kRowGradientF32, "dx" + c.text(), 36.0);
      if (c.has_addend) {
        expect_close(c.daddend.values, want.g, 0.0, "daddend" + c.text(), 1.0);
      }
      const double terms = 1.0 + 16.0 * static_cast<double>(e.outer * e.inner);
      expect_close(c.dgamma.values, want.dgamma, tolerance::kRowF32, "dgamma" + c.text(), terms);
      expect_close(c.dbeta.values, want.dbeta, tolerance::kRowF32, "dbeta" + c.text(), terms);
    }
  }
}

TEST(BatchNormRelu, BackwardMatchesFiniteDifferences) {
  for (const ChannelsExtents& e : {ChannelsExtents{4, 3, 7}, {29, 5, 1}}) {
    for (Case& c : all_cases(e)) {
      // Far from the bend of ReLU, on both sides of it.
      for (int64_t i = 0; i < e.elements(); ++i) {
        if (c.has_addend) c.addend[i] += i % 3 == 0 ? -24.0f : 24.0f;
      }
      for (int64_t i = 0; i < e.channels; ++i) {
        if (!c.has_addend) c.beta[i] += i == 1 ? -24.0f : 24.0f;
      }
      c.forward(1);
      c.backward(1, Accumulate::kNo);
      const auto loss = [&] {
        c.forward(1);
        return weighted_sum(c.y, c.dy);
      };
      expect_gradient("x" + c.text(), c.x, c.dx, loss);
      expect_gradient("gamma" + c.text(), c.gamma, c.dgamma, loss);
      expect_gradient("beta" + c.text(), c.beta, c.dbeta, loss);
      if (c.has_addend) expect_gradient("addend" + c.text(), c.addend, c.daddend, loss);
    }
  }
}

TEST(BatchNormRelu, MatchesPyTorch) {
  const std::vector<GoldenCase> cases = read_golden("channels_golden.txt", "batch_norm");
  ASSERT_EQ(cases.size(), 8u);
  for (const GoldenCase& golden : cases) {
    const ChannelsExtents e = golden_extents(golden);
    Case c(e, golden.has("addend"),
           golden.number("training") != 0.0 ? NormStatistics::kBatch : NormStatistics::kRunning);
    c.momentum = static_cast<float>(golden.number("momentum"));
    c.epsilon = static_cast<float>(golden.number("epsilon"));
    c.x = golden_tensor(golden, "x", {e.outer, e.channels, e.inner});
    c.dy = golden_tensor(golden, "dy", {e.outer, e.channels, e.inner});
    if (c.has_addend) c.addend = golden_tensor(golden, "addend", {e.outer, e.channels, e.inner});
    c.gamma = golden_tensor(golden, "gamma", {e.channels});
    c.beta = golden_tensor(golden, "beta", {e.channels});
    c.running_mean = golden_tensor(golden, "running_mean", {e.channels});
    c.running_var = golden_tensor(golden, "running_var", {e.channels});
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const std::string& name = golden.text("name");
    const auto expect = [&](const char* field, const HostTensor<float>& found, double magnitude) {
      expect_like_golden(found, golden.numbers(field), tolerance::kRowGradientF32, magnitude,
                         concat(name, ": ", field));
    };
    // Values within 4 deviations of 1. A mean of 10000 is itself rounded to half of 2^-10, which
    // normalised values of deviation 1 inherit.
    double largest = 0.0;
    for (const double value : golden.numbers("x")) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    const double scale = 8.0 + largest;
    expect("y", c.y, scale);
    expect("new_running_mean", c.new_mean, scale);
    expect("new_running_var", c.new_var, scale);
    expect("dx", c.dx, scale);
    // A constant channel's rstd is 2^5.
    expect("dgamma", c.dgamma, 10.0 * scale);
    expect("dbeta", c.dbeta, 10.0 * scale);
    if (c.has_addend) expect("daddend", c.daddend, scale);
  }
}

TEST(BatchNormRelu, OneElementPerChannelGivesItsBeta) {
  Case c({1, 4, 1}, true, NormStatistics::kBatch);
  c.forward(1);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(c.mean[i], c.x[i]);
    EXPECT_EQ(c.rstd[i], 4.0f);  // 1 / sqrt(0 + 2^-4)
    EXPECT_EQ(c.y[i], std::max(c.beta[i] + c.addend[i], 0.0f));
  }
  EXPECT_EQ(c.new_var.values, c.running_var.values);
  c.backward(1, Accumulate::kNo);
  EXPECT_EQ(c.dx.values, std::vector<float>(4, 0.0f));
}

TEST(BatchNormRelu, ZeroBitsStopInfiniteGradients) {
  Case c({2, 3, 5}, true, NormStatistics::kBatch);
  c.addend.values.assign(c.addend.values.size(), 24.0f);
  for (const int64_t i : {0, 7, 14, 29}) {
    c.addend[i] = -1000.0f;
    c.dy[i] = i % 2 == 0 ? HUGE_VALF : std::numeric_limits<float>::quiet_NaN();
  }
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  for (const int64_t i : {0, 7, 14, 29}) EXPECT_EQ(c.daddend[i], 0.0f) << i;
  for (const float value : c.dx.values) EXPECT_TRUE(std::isfinite(value));
  for (const float value : c.dgamma.values) EXPECT_TRUE(std::isfinite(value));
}

TEST(BatchNormRelu, AnInfinityMakesItsChannelNanAndNoOther) {
  for (const float infinity : {HUGE_VALF, -HUGE_VALF}) {
    Case c({2, 3, 5}, false, NormStatistics::kBatch);
    c.x[7] = infinity;  // channel 1
    c.forward(1);
    for (int64_t i = 0; i < c.e.elements(); ++i) {
      EXPECT_EQ(std::isnan(c.y[i]), c.e.channel_of(i) == 1) << i;
      EXPECT_TRUE(c.e.channel_of(i) != 1 || c.bit(i)) << i;
    }
    EXPECT_FALSE(std::isfinite(c.new_mean[1]));
    EXPECT_FALSE(std::isfinite(c.new_var[1]));
    EXPECT_TRUE(std::isfinite(c.new_mean[0]));
  }
}

TEST(BatchNormRelu, MaskAndRunningStatisticsMayBeMissing) {
  Case c({3, 5, 7}, false, NormStatistics::kBatch);
  c.forward(1);
  const std::vector<float> want = c.y.values;
  c.y = garbage_tensor({3, 5, 7});
  BatchNormReluFwd args = c.forward_args();
  args.mask = args.running_mean = args.running_var = View();
  run_on_cpu(args);
  EXPECT_EQ(c.y.values, want);
}

TEST(BatchNormRelu, AGradientMayReplaceTheOutputGradient) {
  Case c({3, 5, 7}, true, NormStatistics::kBatch);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  const HostTensor<float> dx = c.dx;
  const HostTensor<float> daddend = c.daddend;
  const HostTensor<float> dy = c.dy;
  for (const bool replaced_by_dx : {true, false}) {
    c.dy = dy;
    BatchNormReluBwd args = c.backward_args();
    (replaced_by_dx ? args.dx : args.daddend) = c.dy.view();
    run_on_cpu(args, 2);
    EXPECT_EQ(replaced_by_dx ? c.dy.values : c.dx.values, dx.values);
    EXPECT_EQ(replaced_by_dx ? c.daddend.values : c.dy.values, daddend.values);
  }
}

TEST(BatchNormRelu, AccumulateAddsToTheParameterGradients) {
  expect_backward_adds(Case({5, 3, 7}, true, NormStatistics::kBatch),
                       {&Case::dgamma, &Case::dbeta});
  Case none({0, 2, 5}, false, NormStatistics::kBatch);
  none.dgamma.values = none.dbeta.values = {1.0f, 2.0f};
  none.backward(1, Accumulate::kYes);
  EXPECT_EQ(none.dgamma.values, (std::vector<float>{1.0f, 2.0f}));
  none.backward(1, Accumulate::kNo);
  EXPECT_EQ(none.dgamma.values, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(none.dbeta.values, (std::vector<float>{0.0f, 0.0f}));
}

TEST(BatchNormRelu, IsTheSameForEveryNumberOfThreads) {
  for (const ChannelsExtents& e : {ChannelsExtents{511, 40, 1}, {7, 33, 49}}) {
    expect_same_for_threads(Case(e, true, NormStatistics::kBatch),
                            {&Case::y, &Case::mean, &Case::rstd, &Case::dx, &Case::daddend,
                             &Case::dgamma, &Case::dbeta});
  }
}

}  // namespace
}  // namespace bertha::testing
