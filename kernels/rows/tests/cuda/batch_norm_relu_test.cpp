#include "kernels/rows/ops/batch_norm_relu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/ops/check_channels.h"
#include "kernels/rows/tests/cuda/channel_tensors.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha::testing {
namespace {

constexpr float kEpsilon = 0.0625f;
constexpr float kMomentum = 0.25f;

struct Inputs {
  Inputs(DType io_in, const ChannelsExtents& extents) : io(io_in), e(extents) {
    x = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 1));
    addend = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 2));
    dy = rounded_to(io, random_tensor({e.outer, e.channels, e.inner}, 3));
    gamma = random_tensor({e.channels}, 4);
    beta = random_tensor({e.channels}, 5);
    running_mean = random_tensor({e.channels}, 6);
    running_var = random_tensor({e.channels}, 7);
    for (float& value : running_var.values) value = std::abs(value) + 0.5f;
  }
  bool is_batch() const { return statistics == NormStatistics::kBatch; }
  std::string text() const {
    return concat(" ", name(io), e.text(), has_addend ? ", addend" : "",
                  is_batch() ? "" : ", inference", " + ", offset);
  }

  DType io;
  ChannelsExtents e;
  bool has_addend = true;
  NormStatistics statistics = NormStatistics::kBatch;
  int64_t offset = 0;  // of io tensors from an aligned address
  HostTensor<float> x, addend, dy, gamma, beta, running_mean, running_var;
};

struct Outputs {
  std::vector<float> y, mean, rstd, running_mean, running_var;
  std::vector<uint8_t> mask;
  std::vector<float> dx, daddend, dgamma, dbeta;
};

/// Forward, then backward that adds its parameter gradients to one, on a backend. The reference
/// takes the same values in f32.
Outputs run(const RowBackend& backend, DType io, const Inputs& in) {
  const int64_t offset = in.offset;
  const ChannelsExtents& e = in.e;
  const auto channel_values = [&](const HostTensor<float>& values) {
    return DeviceTensor(backend, DType::kF32, values);
  };
  const DeviceTensor x(backend, io, in.x, offset);
  const DeviceTensor addend(backend, io, in.addend, offset);
  const DeviceTensor dy(backend, io, in.dy, offset);
  const DeviceTensor gamma = channel_values(in.gamma);
  const DeviceTensor beta = channel_values(in.beta);
  const DeviceTensor running_mean = channel_values(in.running_mean);
  const DeviceTensor running_var = channel_values(in.running_var);
  const DeviceTensor mean = channel_values(garbage_tensor({e.channels}));
  const DeviceTensor rstd = channel_values(garbage_tensor({e.channels}));
  const DeviceTensor mask(backend, HostTensor<uint8_t>({bit_bytes(e.elements())}, 0xA5));
  const DeviceTensor y(backend, io, garbage_like(e), offset);
  backend.run(BatchNormReluFwd{.x = x.view(),
                               .addend = in.has_addend ? addend.view() : View(),
                               .gamma = gamma.view(),
                               .beta = beta.view(),
                               .running_mean = running_mean.view(),
                               .running_var = running_var.view(),
                               .y = y.view(),
                               .mask = mask.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .statistics = in.statistics,
                               .momentum = kMomentum,
                               .epsilon = kEpsilon});
  const DeviceTensor dx(backend, io, garbage_like(e), offset);
  const DeviceTensor daddend(backend, io, garbage_like(e), offset);
  const DeviceTensor dgamma = channel_values(HostTensor<float>({e.channels}, 1.0f));
  const DeviceTensor dbeta = channel_values(HostTensor<float>({e.channels}, 1.0f));
  backend.run(BatchNormReluBwd{.dy = dy.view(),
                               .x = x.view(),
                               .mask = mask.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .gamma = gamma.view(),
                               .dx = dx.view(),
                               .daddend = in.has_addend ? daddend.view() : View(),
                               .dgamma = dgamma.view(),
                               .dbeta = dbeta.view(),
                               .statistics = in.statistics,
                               .accumulate = Accumulate::kYes});
  return {.y = y.floats().values,
          .mean = mean.floats().values,
          .rstd = rstd.floats().values,
          .running_mean = running_mean.floats().values,
          .running_var = running_var.floats().values,
          .mask = mask.values<uint8_t>().values,
          .dx = dx.floats().values,
          .daddend = daddend.floats().values,
          .dgamma = dgamma.floats().values,
          .dbeta = dbeta.floats().values};
}

Doubles doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

bool bit_of(const std::vector<uint8_t>& mask, int64_t i) {
  return (mask[static_cast<size_t>(i / 8)] >> (i % 8) & 1) != 0;
}

/// Values of order one. `spread` is the magnitude of x beside its deviation.
void expect_like_reference(const Inputs& in, double spread) {
  const ChannelsExtents& e = in.e;
  const std::string what = in.text();
  const Outputs found = run(gpu(), in.io, in);
  for (int64_t i = 0; i < 8 * static_cast<int64_t>(found.mask.size()); ++i) {
    const bool want = i < e.elements() && found.y[static_cast<size_t>(i)] != 0.0f;
    ASSERT_EQ(bit_of(found.mask, i), want) << i << what;
  }
  const Outputs want = run(cpu(), DType::kF32, in);
  if (e.elements() > 0) {
    // gamma * n + beta + addend, where n may be some ten.
    expect_close(found.y, doubles(want.y), tolerance::device_row(rounding(in.io)), "y" + what,
                 36.0 + 4.0 * spread);
    expect_close(found.mean, doubles(want.mean), tolerance::kRowF32, "mean" + what, 4.0 + spread);
    expect_close(found.rstd, doubles(want.rstd), tolerance::kRowF32, "rstd" + what);
    expect_close(found.running_mean, doubles(want.running_mean), tolerance::kRowF32,
                 "running mean" + what, 4.0 + spread);
    expect_close(found.running_var, doubles(want.running_var), tolerance::kRowF32,
                 "running variance" + what, 8.0);
  }
  // The gradients of what this backend's own bits let through.
  const auto per_channel = e.outer * e.inner;
  NaiveBatchNorm norm{e, in.x.doubles(), in.gamma.doubles(), doubles(found.mean),
                      doubles(found.rstd)};
  std::vector<bool> ones;
  for (int64_t i = 0; i < e.elements(); ++i) ones.push_back(bit_of(found.mask, i));
  NaiveBatchNormGradient gradient =
      naive_batch_norm_backward(norm, in.dy.doubles(), ones, in.is_batch());
  for (double& value : gradient.dgamma) value += 1.0;
  for (double& value : gradient.dbeta) value += 1.0;
  const double summed = tolerance::device_sum(rounding(DType::kF32), per_channel);
  const double terms = 2.0 + 16.0 * static_cast<double>(per_channel);
  expect_close(found.dgamma, gradient.dgamma, summed, "dgamma" + what, terms);
  expect_close(found.dbeta, gradient.dbeta, summed, "dbeta" + what, terms);
  expect_close(found.dx, gradient.dx, tolerance::device_row_gradient(rounding(in.io)), "dx" + what,
               64.0);
  if (in.has_addend) expect_close(found.daddend, gradient.g, 0.0, "daddend" + what, 1.0);
}

TEST(GpuBatchNormRelu, MatchesTheReference) {
  for (const DType io : kIoTypes) {
    for (const ChannelsExtents& e : kChannelsExtents) {
      for (const bool has_addend : {false, true}) {
        for (const NormStatistics statistics : {NormStatistics::kBatch, NormStatistics::kRunning}) {
          Inputs in(io, e);
          in.has_addend = has_addend;
          in.statistics = statistics;
          in.offset = has_addend ? 0 : 1;  // aligned to 16 bytes, and not
          expect_like_reference(in, 2.0);
          in.offset = 0;
          expect_like_reference(in, 2.0);
        }
      }
    }
  }
}

TEST(GpuBatchNormRelu, TilesAndLongTensorsMatchTheReference) {
  const auto check = [](DType io, const ChannelsExtents& e, bool has_addend) {
    Inputs in(io, e);
    in.has_addend = has_addend;
    expect_like_reference(in, 2.0);
  };
  for (const ChannelsExtents& e : kTiledExtents) {
    for (const DType io : kIoTypes) check(io, e, true);
    check(DType::kF16, e, false);
  }
  for (const ChannelsExtents& e : kLongExtents) check(DType::kF16, e, true);
  check(DType::kF32, {60000, 64, 1}, true);  // backward, more than shared memory holds
  // Backward, more tiles of several blocks than run at once.
  check(DType::kF16, {65, 266, 196}, true);
  check(DType::kBF16, {33, 133, 784}, false);
}

TEST(GpuBatchNormRelu, StatisticsAreSoundFarFromZero) {
  for (const ChannelsExtents& e : {ChannelsExtents{16, 3, 3136},
                                   {50000, 8, 1},
                                   {60, 5, 49},
                                   {9000, 3, 1},
                                   {100, 8, 49},
                                   {4000, 16, 1}}) {
    Inputs far(DType::kF32, e);
    for (float& value : far.x.values) value += 10000.0f;
    expect_like_reference(far, 10000.0);
    // The first elements of channels are what sums start from.
    Inputs outlier(DType::kF32, e);
    for (int64_t c = 0; c < e.channels; ++c) outlier.x[c * e.inner] = 4096.0f;
    const Outputs found = run(gpu(), DType::kF32, outlier);
    const Outputs want = run(cpu(), DType::kF32, outlier);
    // Relative to each one: a thread's some hundred elements multiply one rounding.
    for (size_t c = 0; c < want.rstd.size(); ++c) {
      EXPECT_NEAR(found.rstd[c], want.rstd[c], 1e-4f * want.rstd[c]) << e.text();
      EXPECT_NEAR(found.mean[c], want.mean[c], 1e-4f) << e.text();
    }
    Inputs constant(DType::kF32, e);
    constant.x.values.assign(constant.x.values.size(), 10000.0f);
    for (const float value : run(gpu(), DType::kF32, constant).rstd) EXPECT_EQ(value, 4.0f);
  }
}

TEST(GpuBatchNormRelu, InfinitiesAndNansStayWhereTheyBelong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType io : kIoTypes) {
    for (const ChannelsExtents& e :
         {ChannelsExtents{2, 3, 5}, {10, 8, 1}, {400, 16, 1}, {4, 3, 16}, {4, 8, 9}}) {
      Inputs stopped(io, e);
      stopped.addend.values.assign(stopped.addend.values.size(), 24.0f);
      for (const int64_t i : {0, 7, 14, 29}) {
        stopped.addend[i] = -1000.0f;
        stopped.dy[i] = i % 2 == 0 ? HUGE_VALF : nan;
      }
      const Outputs finite = run(gpu(), io, stopped);
      for (const int64_t i : {0, 7, 14, 29})
        EXPECT_EQ(finite.daddend[static_cast<size_t>(i)], 0.0f);
      for (const float value : finite.dx) EXPECT_TRUE(std::isfinite(value)) << stopped.text();
      for (const float value : finite.dgamma) EXPECT_TRUE(std::isfinite(value)) << stopped.text();

      for (const float odd : {HUGE_VALF, -HUGE_VALF, nan}) {
        Inputs in(io, e);
        in.x[e.inner] = odd;  // channel 1
        const Outputs found = run(gpu(), io, in);
        for (int64_t i = 0; i < e.elements(); ++i) {
          const bool is_nan = e.channel_of(i) == 1;
          EXPECT_EQ(std::isnan(found.y[static_cast<size_t>(i)]), is_nan) << i << in.text();
          EXPECT_TRUE(!is_nan || bit_of(found.mask, i)) << i << in.text();
        }
        EXPECT_FALSE(std::isfinite(found.running_var[1]));
        EXPECT_TRUE(std::isfinite(found.running_var[0]));
      }
    }
  }
}

TEST(GpuBatchNormRelu, TwoRunsGiveTheSameBits) {
  for (const ChannelsExtents& e :
       {ChannelsExtents{16, 3, 3136}, {50000, 8, 1}, {20, 2, 1024}, {100, 8, 49}, {4000, 16, 1}}) {
    const Inputs in(DType::kBF16, e);
    const Outputs first = run(gpu(), DType::kBF16, in);
    const Outputs second = run(gpu(), DType::kBF16, in);
    EXPECT_EQ(first.rstd, second.rstd);
    EXPECT_EQ(first.dgamma, second.dgamma);
    EXPECT_EQ(first.dx, second.dx);
  }
}

}  // namespace
}  // namespace bertha::testing
