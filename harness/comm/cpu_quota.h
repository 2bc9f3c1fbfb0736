#pragma once

#include <string>

namespace bertha {

/// Number of cores that the control group of this process may use at once, as set by
/// `docker run --cpus=2`; 0 = unlimited. `root` contains /proc and /sys: "/" in the program.
double cpu_quota_cores(const std::string& root);

}  // namespace bertha
