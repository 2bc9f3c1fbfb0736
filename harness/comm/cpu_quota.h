#pragma once

#include <string>

namespace bertha {

/// Cores that the control group of this process may use at once, such as `docker run --cpus=2`
/// sets; 0 if it is not limited. `root` is where /proc and /sys are: "/" in the program.
double cpu_quota_cores(const std::string& root);

}  // namespace bertha
