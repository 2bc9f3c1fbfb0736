#include "kernels/rows/ops/prelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/cuda/channel_tensors.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha::testing {
namespace {

void expect_forward(DType io, const ChannelsExtents& e, const DeviceTensor& x_on,
                    const HostTensor<float>& x, int64_t offset) {
  const HostTensor<float> slope = rounded_to(io, random_tensor({e.channels}, 2));
  const DeviceTensor slope_on(gpu(), io, slope);
  const DeviceTensor y(gpu(), io, garbage_like(e), offset);
  gpu().run(PreluFwd{.x = x_on.view(), .slope = slope_on.view(), .y = y.view()});
  expect_close(y.floats().values, naive_prelu(e, x.doubles(), slope.doubles()), rounding(io),
               concat("y ", name(io), e.text(), " + ", offset), 4.0);
}

void expect_forward_and_backward(DType io, const ChannelsExtents& e, const DeviceTensor& x_on,
                                 const HostTensor<float>& x, int64_t offset) {
  expect_forward(io, e, x_on, x, offset);

  const std::string what = concat(" ", name(io), e.text(), " + ", offset);
  const HostTensor<float> slope = rounded_to(io, random_tensor({e.channels}, 2));
  const HostTensor<float> dy = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 3));
  const DeviceTensor slope_on(gpu(), io, slope);
  const DeviceTensor dy_on(gpu(), io, dy, offset);
  const NaivePreluGradient want =
      naive_prelu_backward(e, x.doubles(), slope.doubles(), dy.doubles());
  const double terms = 4.0 + largest_magnitude(want.terms);
  const double summed = tolerance::device_sum(rounding(io), e.outer * e.inner);
  const HostTensor<float> before = rounded_to(io, random_tensor({e.channels}, 4));
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
    const bool adds = accumulate == Accumulate::kYes;
    const DeviceTensor dx(gpu(), io, garbage_like(e), offset);
    const DeviceTensor dslope(gpu(), io, adds ? before : garbage_tensor({e.channels}));
    // With kYes dx replaces dy.
    const View to = (adds ? dy_on : dx).view();
    gpu().run(PreluBwd{.dy = dy_on.view(),
                       .x = x_on.view(),
                       .slope = slope_on.view(),
                       .dx = to,
                       .dslope = dslope.view(),
                       .accumulate = accumulate});
    expect_close((adds ? dy_on : dx).floats().values, want.dx, rounding(io), "dx" + what, 4.0);
    Doubles sums = want.dslope;
    for (int64_t c = 0; adds && c < e.channels; ++c) at(sums, c) += static_cast<double>(before[c]);
    expect_close(dslope.floats().values, sums, summed, "dslope" + what, terms);
  }
}

TEST(GpuPrelu, MatchesTheDefinition) {
  for (const DType io : kIoTypes) {
    for (const ChannelsExtents& e : kChannelsExtents) {
      const HostTensor<float> x = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 1));
      for (const int64_t offset : {0, 1}) {  // aligned to 16 bytes, and not
        expect_forward_and_backward(io, e, DeviceTensor(gpu(), io, x, offset), x, offset);
      }
    }
  }
}

TEST(GpuPrelu, TilesAndLongTensorsMatchTheDefinition) {
  const auto check = [](DType io, const ChannelsExtents& e) {
    const HostTensor<float> x = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 1));
    expect_forward_and_backward(io, e, DeviceTensor(gpu(), io, x), x, 0);
  };
  for (const ChannelsExtents& e : kTiledExtents) {
    for (const DType io : kIoTypes) check(io, e);
  }
  for (const ChannelsExtents& e : kLongExtents) check(DType::kF16, e);
}

TEST(GpuPrelu, ForwardOfLongTensorsMatchesTheDefinition) {
  const DType io = DType::kF16;
  for (const ChannelsExtents& e :
       {ChannelsExtents{90, 1000, 49}, {90, 100, 496}, {4500, 1000, 1}, {300000, 5, 3}}) {
    const HostTensor<float> x = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 1));
    expect_forward(io, e, DeviceTensor(gpu(), io, x), x, 0);
  }
}

TEST(GpuPrelu, TwoRunsGiveTheSameBits) {
  const DType io = DType::kBF16;
  for (const ChannelsExtents& e : {ChannelsExtents{14, 2, 1024},
                                   {70, 8, 49},
                                   {37, 132, 50},
                                   {3, 4, 8192},
                                   {7500, 8, 1},
                                   {1100, 128, 1},
                                   {17, 8456, 1}}) {
    const DeviceTensor x(gpu(), io, random_tensor({e.outer, e.channels, e.inner}, 1));
    const DeviceTensor dy(gpu(), io, random_tensor({e.outer, e.channels, e.inner}, 2));
    const DeviceTensor slope(gpu(), io, random_tensor({e.channels}, 3));
    std::vector<std::vector<float>> sums;
    for (int run = 0; run < 2; ++run) {
      const DeviceTensor dx(gpu(), io, garbage_like(e));
      const DeviceTensor dslope(gpu(), io, garbage_tensor({e.channels}));
      gpu().run(PreluBwd{.dy = dy.view(),
                         .x = x.view(),
                         .slope = slope.view(),
                         .dx = dx.view(),
                         .dslope = dslope.view()});
      sums.push_back(dslope.floats().values);
    }
    EXPECT_EQ(sums[0], sums[1]) << e.text();
  }
}

TEST(GpuPrelu, ZerosNansAndInfinitiesAreThoseOfTheReference) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  HostTensor<float> x({1, 2, 8});
  x.values = {0.0f, -0.0f, nan, HUGE_VALF, -HUGE_VALF, -2.0f, 3.0f, 1.0f};
  for (size_t i = 0; i < 8; ++i) x.values.push_back(x.values[i]);
  HostTensor<float> slope({2});
  slope.values = {0.0f, -0.5f};
  const HostTensor<float> dy({1, 2, 8}, 2.0f);
  std::vector<std::vector<float>> of_backend;
  for (const RowBackend* backend : {&cpu(), &gpu()}) {
    const DeviceTensor x_on(*backend, DType::kF32, x);
    const DeviceTensor slope_on(*backend, DType::kF32, slope);
    const DeviceTensor dy_on(*backend, DType::kF32, dy);
    const DeviceTensor y(*backend, DType::kF32, garbage_tensor({1, 2, 8}));
    const DeviceTensor dx(*backend, DType::kF32, garbage_tensor({1, 2, 8}));
    const DeviceTensor dslope(*backend, DType::kF32, garbage_tensor({2}));
    backend->run(PreluFwd{.x = x_on.view(), .slope = slope_on.view(), .y = y.view()});
    backend->run(PreluBwd{.dy = dy_on.view(),
                          .x = x_on.view(),
                          .slope = slope_on.view(),
                          .dx = dx.view(),
                          .dslope = dslope.view()});
    std::vector<float> all = y.floats().values;
    for (const DeviceTensor* tensor : {&dx, &dslope}) {
      for (const float value : tensor->floats().values) all.push_back(value);
    }
    of_backend.push_back(all);
  }
  for (size_t i = 0; i < of_backend[0].size(); ++i) {
    const float want = of_backend[0][i];
    const float found = of_backend[1][i];
    EXPECT_TRUE(found == want || (std::isnan(found) && std::isnan(want)))
        << i << ": " << found << ", want " << want;
  }
}

}  // namespace
}  // namespace bertha::testing
