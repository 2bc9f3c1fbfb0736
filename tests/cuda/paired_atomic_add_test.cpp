#include <gtest/gtest.h>

#include "tests/cuda/gpu.h"
#include "tests/cuda/paired_adds.h"

namespace bertha::testing {
namespace {

/// Values stay below 128 where bf16 still has all integers: the sums are exact in any order.
TEST(CudaPairedAtomicAdd, AnyWidthAtAnyElement) {
  constexpr int kRows = 3;
  constexpr int kTimes = 3;
  for (const DType dtype : kIoTypes) {
    for (const int width : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 31, 40}) {
      for (int offset = 0; offset < 5; ++offset) {
        const std::vector<float> got = paired_adds(dtype, kRows, width, offset, kTimes);
        for (int i = 0; i < static_cast<int>(got.size()); ++i) {
          const int at = i - offset;
          const bool inside = at >= 0 && at < kRows * width;
          const float want = inside ? 1.0f + static_cast<float>(kTimes * (at % width + 1)) : 2.0f;
          ASSERT_EQ(got[static_cast<size_t>(i)], want)
              << name(dtype) << ", width " << width << ", offset " << offset << ", element " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bertha::testing
