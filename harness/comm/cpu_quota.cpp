#include "harness/comm/cpu_quota.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace bertha {
namespace {

namespace fs = std::filesystem;

/// The quota of version 2, "max 100000" or "200000 100000": quota and period in microseconds.
double quota_of(const fs::path& cpu_max) {
  std::ifstream file(cpu_max);
  std::string quota;
  double period_us = 0;
  if (!(file >> quota >> period_us) || quota == "max" || period_us <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period_us;
}

/// The quota of version 1, with a file for each number; -1 means no limit.
double version_1_quota(const fs::path& folder) {
  double quota_us = 0;
  double period_us = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota_us;
  std::ifstream(folder / "cpu.cfs_period_us") >> period_us;
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

/// "user.slice/job" from the line "0::/user.slice/job".
std::string own_group(const fs::path& proc_file) {
  std::ifstream file(proc_file);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) == 0) return line.substr(4);
  }
  return "";
}

double tighter(double a, double b) {
  if (a <= 0 || b <= 0) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

double cpu_quota_cores(const std::string& root) {
  const fs::path groups = fs::path(root) / "sys/fs/cgroup";
  double quota = tighter(version_1_quota(groups / "cpu"), quota_of(groups / "cpu.max"));
  // Every group above this one also limits it.
  fs::path folder = groups;
  for (const fs::path& part : fs::path(own_group(fs::path(root) / "proc/self/cgroup"))) {
    folder /= part;
    quota = tighter(quota, quota_of(folder / "cpu.max"));
  }
  return quota;
}

}  // namespace bertha
