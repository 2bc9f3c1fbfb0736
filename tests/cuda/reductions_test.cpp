#include "kernels/ops/reductions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/base/tests/tolerance.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double run(const View& values, Accumulate accumulate = Accumulate::kNo, double before = 17.0) {
  const DeviceTensor result(gpu(), HostTensor<double>({1}, before));
  gpu().ops->run(SumOfSquares{.values = values, .result = result.view(), .accumulate = accumulate});
  return result.values<double>()[0];
}

double serial_sum(const HostTensor<float>& values, int64_t begin = 0) {
  long double sum = 0;
  for (int64_t i = begin; i < values.elements(); ++i) {
    sum += static_cast<long double>(values[i]) * static_cast<long double>(values[i]);
  }
  return static_cast<double>(sum);
}

TEST(CudaSumOfSquares, EqualsALongDoubleSumAtRaggedSizes) {
  for (const DType dtype : kIoTypes) {
    for (const int64_t count : {0, 1, 7, 33, 511, 65'536, 3'000'001}) {
      const HostTensor<float> values = rounded_to(dtype, random_tensor({count}, 5));
      const DeviceTensor tensor(gpu(), dtype, values);
      const double want = serial_sum(values);
      EXPECT_NEAR(run(tensor.view()), want, tolerance::kSumF64 * want) << name(dtype) << count;
    }
  }
}

TEST(CudaSumOfSquares, BeginsAtAnyElement) {
  for (const DType dtype : kIoTypes) {
    for (const int64_t count : {1, 5, 40, 5'000}) {
      for (int64_t begin = 0; begin < 9; ++begin) {
        HostTensor<float> values = rounded_to(dtype, random_tensor({begin + count}, 6));
        for (int64_t i = 0; i < begin; ++i) values[i] = kNan;
        const DeviceTensor tensor(gpu(), dtype, values);
        const double want = serial_sum(values, begin);
        EXPECT_NEAR(run(tensor.view().rows(begin, count)), want, tolerance::kSumF64 * want)
            << name(dtype) << " " << count << " from " << begin;
      }
    }
  }
}

TEST(CudaSumOfSquares, AccumulateAddsToWhatIsThere) {
  HostTensor<float> values({2});
  values.values = {3.0f, -4.0f};
  const DeviceTensor tensor(gpu(), DType::kF32, values);
  EXPECT_EQ(run(tensor.view(), Accumulate::kYes), 42.0);
  EXPECT_EQ(run(tensor.view(), Accumulate::kNo), 25.0);
  EXPECT_EQ(run(tensor.view().rows(0, 0), Accumulate::kYes), 17.0);
  EXPECT_EQ(run(tensor.view().rows(0, 0), Accumulate::kNo), 0.0);
}

TEST(CudaSumOfSquares, HasTheSameBitsAtEveryRun) {
  const HostTensor<float> values = random_tensor({2'000'003}, 8);
  const DeviceTensor tensor(gpu(), DType::kF32, values);
  const double first = run(tensor.view());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(run(tensor.view()), first);
}

TEST(CudaSumOfSquares, IsNotFiniteExactlyWhenAValueIsNot) {
  HostTensor<float> values({70'000}, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(run(DeviceTensor(gpu(), DType::kF32, values).view())));
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    values[69'999] = bad;
    EXPECT_FALSE(std::isfinite(run(DeviceTensor(gpu(), DType::kF32, values).view())));
  }
  HostTensor<float> halves({70'000}, 60'000.0f);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(std::isfinite(run(DeviceTensor(gpu(), dtype, halves).view())));
    HostTensor<float> bad = halves;
    bad[0] = kInfinity;
    EXPECT_FALSE(std::isfinite(run(DeviceTensor(gpu(), dtype, bad).view())));
  }
}

}  // namespace
}  // namespace bertha::testing
