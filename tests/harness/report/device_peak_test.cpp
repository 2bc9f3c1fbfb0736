#include "harness/report/device_peak.h"

#include <gtest/gtest.h>

namespace bertha {
namespace {

TEST(DevicePeak, IsThatOfTheDataSheetIn16Bits) {
  EXPECT_EQ(peak_flops("NVIDIA H200, GPU 3, 139.8 GiB", DType::kBF16), 989.5e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3, GPU 0, 79.1 GiB", DType::kF16), 989.5e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe, GPU 0, 79.1 GiB", DType::kBF16), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB, GPU 0, 79.1 GiB", DType::kBF16), 312e12);
}

TEST(DevicePeak, IsNotGuessed) {
  EXPECT_EQ(peak_flops("NVIDIA H200, GPU 0, 139.8 GiB", DType::kF32), 0);
  EXPECT_EQ(peak_flops("NVIDIA Unheard, GPU 0, 1.0 GiB", DType::kBF16), 0);
  EXPECT_EQ(peak_flops("cpu, 2 threads", DType::kBF16), 0);
}

}  // namespace
}  // namespace bertha
