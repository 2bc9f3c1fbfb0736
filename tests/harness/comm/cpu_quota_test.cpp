#include "harness/comm/cpu_quota.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

/// A folder with the files of /proc and /sys that a test writes.
class CpuQuotaTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { folder_.write(path, text); }
  double quota() const { return cpu_quota_cores(folder_.path()); }

 private:
  const TempFolder folder_;
};

TEST_F(CpuQuotaTest, NoFilesMeanNoLimit) { EXPECT_EQ(quota(), 0); }

TEST_F(CpuQuotaTest, MaxMeansNoLimit) {
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CpuQuotaTest, ContainerLimitIsQuotaOverPeriod) {
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CpuQuotaTest, TheTightestGroupAboveCounts) {
  write("proc/self/cgroup", "0::/slice/job/step\n");
  write("sys/fs/cgroup/slice/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/slice/job/cpu.max", "150000 50000\n");
  write("sys/fs/cgroup/slice/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(CpuQuotaTest, ReadsTheFilesOfVersionOne) {
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000\n");
  EXPECT_EQ(quota(), 6);
}

}  // namespace
}  // namespace bertha
