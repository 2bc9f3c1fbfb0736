#include "kernels/rows/ops/prelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/channels_golden.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha::testing {
namespace {

struct Case {
  explicit Case(const ChannelsExtents& extents) : e(extents) {}

  void forward(int threads) {
    run_on_cpu(PreluFwd{.x = x.view(), .slope = slope.view(), .y = y.view()}, threads);
  }
  void backward(int threads, Accumulate accumulate) {
    run_on_cpu(PreluBwd{.dy = dy.view(),
                        .x = x.view(),
                        .slope = slope.view(),
                        .dx = dx.view(),
                        .dslope = dslope.view(),
                        .accumulate = accumulate},
               threads);
  }

  ChannelsExtents e;
  HostTensor<float> x = random_tensor({e.outer, e.channels, e.inner}, 1);
  HostTensor<float> slope = random_tensor({e.channels}, 2);
  HostTensor<float> y = garbage_tensor({e.outer, e.channels, e.inner});
  HostTensor<float> dy = random_tensor({e.outer, e.channels, e.inner}, 3);
  HostTensor<float> dx = garbage_tensor({e.outer, e.channels, e.inner});
  HostTensor<float> dslope = garbage_tensor({e.channels});
};

TEST(Prelu, MatchesTheDefinition) {
  for (const ChannelsExtents& e : kChannelsExtents) {
    Case c(e);
    c.forward(2);
    c.backward(2, Accumulate::kNo);
    expect_close(c.y.values, naive_prelu(e, c.x.doubles(), c.slope.doubles()), tolerance::kRowF32,
                 "y" + e.text(), 4.0);
    const NaivePreluGradient want =
        naive_prelu_backward(e, c.x.doubles(), c.slope.doubles(), c.dy.doubles());
    expect_close(c.dx.values, want.dx, tolerance::kRowF32, "dx" + e.text(), 4.0);
    expect_close(c.dslope.values, want.dslope, tolerance::kRowF32, "dslope" + e.text(),
                 1.0 + largest_magnitude(want.terms));
  }
}

TEST(Prelu, MatchesPyTorch) {
  const std::vector<GoldenCase> cases = read_golden("channels_golden.txt", "prelu");
  ASSERT_EQ(cases.size(), 5u);
  for (const GoldenCase& golden : cases) {
    const ChannelsExtents e = golden_extents(golden);
    Case c(e);
    c.x = golden_tensor(golden, "x", {e.outer, e.channels, e.inner});
    c.slope = golden_tensor(golden, "slope", {e.channels});
    c.dy = golden_tensor(golden, "dy", {e.outer, e.channels, e.inner});
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const std::string& name = golden.text("name");
    const auto expect = [&](const char* field, const HostTensor<float>& found, double magnitude) {
      expect_like_golden(found, golden.numbers(field), tolerance::kRowF32, magnitude,
                         concat(name, ": ", field));
    };
    // Values within 4 deviations of 1; sums of at most 40 products.
    expect("y", c.y, 16.0);
    expect("dx", c.dx, 16.0);
    expect("dslope", c.dslope, 160.0);
  }
}

TEST(Prelu, BackwardMatchesFiniteDifferences) {
  for (const ChannelsExtents& e : {ChannelsExtents{3, 4, 7}, {19, 5, 1}, {1, 1, 60}}) {
    Case c(e);
    // A difference may not step over the bend at 0: its steps reach 2^-5.
    for (float& value : c.x.values) value += value > 0.0f ? 0.0625f : -0.0625f;
    expect_finite_differences(c,
                              {{"x", &Case::x, &Case::dx}, {"slope", &Case::slope, &Case::dslope}});
  }
}

TEST(Prelu, ZeroIsNotPositiveAndKeepsTheSlopesSign) {
  Case c({1, 1, 2});
  c.x.values = {0.0f, -0.0f};
  c.slope.values = {-3.0f};
  c.dy.values = {2.0f, 5.0f};
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  EXPECT_EQ(c.y.values, (std::vector<float>{0.0f, 0.0f}));
  EXPECT_TRUE(std::signbit(c.y[0]));
  EXPECT_FALSE(std::signbit(c.y[1]));
  EXPECT_EQ(c.dx.values, (std::vector<float>{-6.0f, -15.0f}));
  EXPECT_EQ(c.dslope[0], 0.0f);
}

TEST(Prelu, ResultsMayReplaceTheirInputs) {
  Case c({3, 5, 7});
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  run_on_cpu(PreluBwd{.dy = c.dy.view(),
                      .x = c.x.view(),
                      .slope = c.slope.view(),
                      .dx = c.dy.view(),
                      .dslope = c.dslope.view()},
             2);
  EXPECT_EQ(c.dy.values, c.dx.values);
  run_on_cpu(PreluFwd{.x = c.x.view(), .slope = c.slope.view(), .y = c.x.view()}, 2);
  EXPECT_EQ(c.x.values, c.y.values);
}

TEST(Prelu, AccumulateAddsToTheSlopesGradient) {
  expect_backward_adds(Case({5, 3, 7}), {&Case::dslope});
  Case none({0, 3, 5});
  none.dslope.values = {1.0f, 2.0f, 3.0f};
  none.backward(1, Accumulate::kYes);
  EXPECT_EQ(none.dslope.values, (std::vector<float>{1.0f, 2.0f, 3.0f}));
  none.backward(1, Accumulate::kNo);
  EXPECT_EQ(none.dslope.values, (std::vector<float>{0.0f, 0.0f, 0.0f}));
}

TEST(Prelu, IsTheSameForEveryNumberOfThreads) {
  for (const ChannelsExtents& e : {ChannelsExtents{511, 40, 1}, {7, 33, 49}}) {
    expect_same_for_threads(Case(e), {&Case::y, &Case::dx, &Case::dslope});
  }
}

}  // namespace
}  // namespace bertha::testing
