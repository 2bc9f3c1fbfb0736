#include "harness/comm/gpu_state.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

TEST(GpuState, IsWhatTheDriverSays) {
  const GpuState state = read_gpu_state("0000:1b:00.0");
  EXPECT_EQ(state.unread, "");
  EXPECT_EQ(state.pcie_generation, 5);
  EXPECT_EQ(state.max_pcie_generation, 5);
  EXPECT_EQ(state.pcie_lanes, 8);
  EXPECT_EQ(state.max_pcie_lanes, 16);
  EXPECT_EQ(state.sm_mhz, 1400);
  EXPECT_EQ(state.throttle_reasons, 0x44U);
}

TEST(GpuState, EnergyIsThatOfTheMoment) {
  const uint64_t before = read_gpu_state("0000:1b:00.0").energy_mj;
  EXPECT_EQ(read_gpu_state("0000:1b:00.0").energy_mj, before + 500);
}

TEST(GpuState, CountersAreReadAlone) {
  const uint64_t before = read_gpu_state("0000:1b:00.0").energy_mj;
  const GpuCounters counters = read_gpu_counters("0000:1b:00.0");
  EXPECT_EQ(counters.energy_mj, before + 500);
  EXPECT_EQ(counters.sm_mhz, 1400);
  EXPECT_EQ(read_gpu_counters("0000:ff:00.0").energy_mj, 0U);
}

TEST(GpuState, WhatTheDriverLacksOrRefusesIsNotKnown) {
  const GpuState state = read_gpu_state("0000:1b:00.0");
  EXPECT_EQ(state.max_sm_mhz, 0);
  EXPECT_EQ(state.uncorrected_errors, 0U);
}

TEST(GpuState, AnUnknownGpuIsNamed) {
  EXPECT_THAT(read_gpu_state("0000:ff:00.0").unread, HasSubstr("0000:ff:00.0"));
}

TEST(GpuState, ARestingLinkIsNoSlowOne) {
  const GpuState working{.pcie_generation = 5,
                         .pcie_lanes = 16,
                         .sm_mhz = 1980,
                         .throttle_reasons = 0x4,
                         .uncorrected_errors = 0};
  const GpuState resting{.pcie_generation = 1,
                         .pcie_lanes = 16,
                         .sm_mhz = 345,
                         .throttle_reasons = 0x1,
                         .uncorrected_errors = 1};
  const GpuState both = combined(working, resting);
  EXPECT_EQ(both.pcie_generation, 5);
  EXPECT_EQ(combined(resting, working).pcie_generation, 5);
  EXPECT_EQ(both.sm_mhz, 345);
  EXPECT_EQ(both.throttle_reasons, 0x5U);
  EXPECT_EQ(both.uncorrected_errors, 1U);
}

}  // namespace
}  // namespace bertha
