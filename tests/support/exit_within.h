#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "kernels/base/failure.h"

namespace bertha {

/// Ends the process as the program ends after `work`, which has this much more memory than the
/// process has now: for EXPECT_EXIT. Not under sanitizers, which reserve terabytes of addresses.
template <class Work>
[[noreturn]] void exit_within(int64_t room_bytes, const Work& work) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + room_bytes);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  Failure failure{ExitCode::kSuccess, "no failure"};
  try {
    work();
  } catch (...) {
    failure = failure_of(std::current_exception());
  }
  std::cerr << failure.what << std::endl;
  std::_Exit(static_cast<int>(failure.code));
}

}  // namespace bertha
