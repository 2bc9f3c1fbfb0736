#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

namespace bertha {

/// While it lives, writes beyond `bytes` of any file fail, as on a full disk and without
/// privileges: with SIGXFSZ ignored, write() returns EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes) : old_action_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit small{static_cast<rlim_t>(bytes), old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_action_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_action_)(int);
};

}  // namespace bertha
