#include "kernels/base/cuda/gpu_failure.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

TEST(GpuFailure, ABrokenGpuIsNamedWithThePlaceToLookAt) {
  EXPECT_THAT(gpu_failure_text("launch", "uncorrectable ECC error encountered (E)",
                               GpuDamage::kCertain, "GPU 3 (0000:1b:00.0)"),
              AllOf(StartsWith("launch: uncorrectable ECC error encountered (E) on GPU 3 "
                               "(0000:1b:00.0); the GPU or its link is broken"),
                    HasSubstr("dmesg | grep Xid"), HasSubstr("without it")));
}

TEST(GpuFailure, AnAddressThatIsWrongMayBeABug) {
  EXPECT_THAT(gpu_failure_text("launch", "illegal address", GpuDamage::kPossible, "GPU 0"),
              AllOf(StartsWith("launch: illegal address on GPU 0; a bug, or a broken GPU"),
                    HasSubstr("dmesg | grep Xid")));
}

TEST(GpuFailure, WhatIsNoDamageAndNoGpuIsLeftOut) {
  EXPECT_EQ(gpu_failure_text("cudaMalloc(&p, n)", "out of memory", GpuDamage::kNone, ""),
            "cudaMalloc(&p, n): out of memory");
  EXPECT_THAT(gpu_failure_text("launch", "unknown error", GpuDamage::kPossible, ""),
              AllOf(StartsWith("launch: unknown error; "), Not(HasSubstr(" on ;"))));
}

}  // namespace
}  // namespace bertha
