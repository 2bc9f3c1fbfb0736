#include "kernels/cuda/p2p/sum_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <vector>

#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

std::vector<const void*> pointers(const std::deque<DeviceTensor>& tensors) {
  std::vector<const void*> all;
  for (const DeviceTensor& tensor : tensors) all.push_back(tensor.view().data);
  return all;
}

TEST(CudaSumParts, IsTheSumRoundedOnce) {
  for (const DType dtype : kIoTypes) {
    for (const int64_t count : {0, 1, 7, 8, 33, 2'048, 100'003}) {
      for (int parts = 1; parts <= kMaxSumParts; ++parts) {
        std::deque<DeviceTensor> tensors;
        HostTensor<float> want({count});
        for (int part = 0; part < parts; ++part) {
          const HostTensor<float> values =
              rounded_to(dtype, random_tensor({count}, static_cast<uint64_t>(part) + 1));
          tensors.emplace_back(gpu(), dtype, values);
          for (int64_t i = 0; i < count; ++i) want[i] += values[i];
        }
        const DeviceTensor sum(gpu(), dtype, HostTensor<float>({count}, 99.0f));
        sum_parts(*gpu().stream, pointers(tensors), sum.view());
        EXPECT_EQ(sum.floats().values, rounded_to(dtype, want).values)
            << name(dtype) << " " << count << " of " << parts;

        const View last = tensors.back().view();
        sum_parts(*gpu().stream, pointers(tensors), last);
        EXPECT_EQ(tensors.back().floats().values, rounded_to(dtype, want).values) << "in place";
      }
    }
  }
}

// Powers of two, so that products are exact.
TEST(CudaSumParts, MultipliesEachPartWithItsFactor) {
  for (const DType dtype : kIoTypes) {
    for (const int64_t count : {1, 8, 2'051}) {
      std::deque<DeviceTensor> tensors;
      HostTensor<float> factors({kMaxSumParts});
      HostTensor<float> want({count});
      for (int part = 0; part < kMaxSumParts; ++part) {
        factors[part] = std::ldexp(1.0f, 2 - part);
        const HostTensor<float> values =
            rounded_to(dtype, random_tensor({count}, static_cast<uint64_t>(part) + 1));
        tensors.emplace_back(gpu(), dtype, values);
        for (int64_t i = 0; i < count; ++i) want[i] += factors[part] * values[i];
      }
      const DeviceTensor on_gpu(gpu(), DType::kF32, factors);
      const DeviceTensor sum(gpu(), dtype, HostTensor<float>({count}, 99.0f));
      sum_parts(*gpu().stream, pointers(tensors), sum.view(), on_gpu.view().as<float>());
      EXPECT_EQ(sum.floats().values, rounded_to(dtype, want).values) << name(dtype) << " " << count;
    }
  }
}

TEST(CudaSumParts, KeepsInfinitiesAndOverflowsToThem) {
  HostTensor<float> large({8}, 60'000.0f);
  large[3] = -large[3];
  const DeviceTensor a(gpu(), DType::kF16, large);
  const DeviceTensor b(gpu(), DType::kF16, large);
  const DeviceTensor sum(gpu(), DType::kF16, HostTensor<float>({8}));
  const void* const parts[] = {a.view().data, b.view().data};
  sum_parts(*gpu().stream, parts, sum.view());
  const HostTensor<float> found = sum.floats();
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(std::isinf(found[i]) && (found[i] < 0) == (i == 3)) << i << ": " << found[i];
  }
}

TEST(CudaSumParts, RefusesTooManyAndNone) {
  const DeviceTensor values(gpu(), DType::kF32, HostTensor<float>({8}));
  const std::vector<const void*> many(kMaxSumParts + 1, values.view().data);
  EXPECT_THROW(sum_parts(*gpu().stream, many, values.view()), Error);
  EXPECT_THROW(sum_parts(*gpu().stream, {}, values.view()), Error);
  View words = values.view();
  words.dtype = DType::kI32;
  EXPECT_THROW(sum_parts(*gpu().stream, std::vector<const void*>(1, words.data), words), Error);
}

}  // namespace
}  // namespace bertha::testing
