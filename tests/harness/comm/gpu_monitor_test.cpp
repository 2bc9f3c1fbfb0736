#include "harness/comm/gpu_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace bertha {
namespace {

TEST(GpuMonitor, KnowsPowerAndClockAfterAWhile) {
  const GpuMonitor monitor("0000:1b:00.0", 0.01);  // the stand-in counts half a joule per read
  GpuLoad load;
  for (int i = 0; i < 2000 && load.sm_mhz == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    load = monitor.load();
  }
  EXPECT_EQ(load.sm_mhz, 1400);
  EXPECT_GT(load.power_watts, 0);
  EXPECT_LE(load.power_watts, 0.5 / 0.01);
}

TEST(GpuMonitor, WithoutAGpuNothingIsKnown) {
  const GpuMonitor monitor("");
  EXPECT_EQ(monitor.load().sm_mhz, 0);
  EXPECT_EQ(monitor.load().power_watts, 0);
}

}  // namespace
}  // namespace bertha
