#include "kernels/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/ops/lamb.h"
#include "kernels/ops/scale_rules.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr int64_t kCounts[] = {0, 1, 7, 33, 511, 100'003};

/// Values over the whole range of f32, with both zeros, subnormals, infinities and ties.
HostTensor<float> wild_values(int64_t count) {
  HostTensor<float> values = random_tensor({count}, 3);
  constexpr float kSpecial[] = {0.0f,     -0.0f,    1e-40f,  6e-8f,       65519.9f,
                                65520.0f, 3.39e38f, -1e-45f, 1.00390625f, 2049.0f};
  for (int64_t i = 0; i < count; ++i) {
    if (i % 3 == 0) values[i] = kSpecial[(i / 3) % 10];
    if (i % 3 == 1) values[i] = std::ldexp(values[i], static_cast<int>(i % 60) - 30);
  }
  return values;
}

TEST(CudaElementwise, CastRoundsAsTheCpuDoes) {
  for (const int64_t count : kCounts) {
    for (const DType from : kIoTypes) {
      for (const DType to : kIoTypes) {
        const HostTensor<float> values = rounded_to(from, wild_values(count));
        const DeviceTensor in(gpu(), from, values);
        const DeviceTensor out(gpu(), to, garbage_tensor({count}));
        gpu().ops->run(Cast{.from = in.view(), .to = out.view()});
        EXPECT_EQ(out.floats().values, rounded_to(to, values).values)
            << name(from) << " to " << name(to) << ", " << count;
      }
    }
  }
}

TEST(CudaElementwise, CastAtAnOddElementIsTheSame) {
  const HostTensor<float> values = wild_values(100);
  const DeviceTensor in(gpu(), DType::kF32, values);
  const DeviceTensor out(gpu(), DType::kBF16, HostTensor<float>({100}, 5.0f));
  gpu().ops->run(Cast{.from = in.view().rows(1, 37), .to = out.view().rows(3, 37)});
  HostTensor<float> want({100}, 5.0f);
  const HostTensor<float> rounded = rounded_to(DType::kBF16, values);
  for (int64_t i = 0; i < 37; ++i) want[3 + i] = rounded[1 + i];
  EXPECT_EQ(out.floats().values, want.values);
}

TEST(CudaElementwise, Fill) {
  for (const int64_t count : kCounts) {
    for (const DType dtype : kIoTypes) {
      const DeviceTensor tensor(gpu(), dtype, garbage_tensor({count}));
      gpu().ops->run(Fill{.values = tensor.view(), .value = 1.5});
      EXPECT_EQ(tensor.floats().values, HostTensor<float>({count}, 1.5f).values);
    }
    const DeviceTensor integers(gpu(), HostTensor<int64_t>({count}, 3));
    gpu().ops->run(Fill{.values = integers.view(), .value = -1e15});
    EXPECT_EQ(integers.values<int64_t>().values, HostTensor<int64_t>({count}, -1e15).values);
  }
}

TEST(CudaElementwise, GradientScaleReadsCountAndLossScale) {
  const LambState state{.loss_scale = 8.0f};
  HostTensor<uint8_t> bytes({static_cast<int64_t>(sizeof(state))});
  std::memcpy(bytes.values.data(), &state, sizeof(state));
  const DeviceTensor on_device(gpu(), bytes);
  for (const auto& [rows, want] : {std::pair<int64_t, float>{4, 3.0f}, {0, 12.0f}}) {
    const DeviceTensor denominator(gpu(), HostTensor<int64_t>({1}, rows));
    const DeviceTensor target(gpu(), DType::kF32, garbage_tensor({1}));
    const DeviceTensor scale(gpu(), DType::kF32, garbage_tensor({1}));
    const DeviceTensor inverse(gpu(), DType::kF32, garbage_tensor({1}));
    gpu().ops->run(GradientScale{.denominator = denominator.view(),
                                 .state = on_device.view(),
                                 .target = target.view(),
                                 .numerator = 1.5,
                                 .fp8_scale = scale.view(),
                                 .fp8_inverse_scale = inverse.view()});
    EXPECT_EQ(target.floats()[0], want);
    EXPECT_EQ(scale.floats()[0], softmax_gradient_scale(want));
    EXPECT_EQ(inverse.floats()[0], 1.0f / softmax_gradient_scale(want));
  }
}

}  // namespace
}  // namespace bertha::testing
