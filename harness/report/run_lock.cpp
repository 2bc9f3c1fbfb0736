#include "harness/report/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "harness/report/files.h"
#include "harness/report/system_facts.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

/// 0, or the errno of the last try.
int try_to_lock(int descriptor, double patience_seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point limit =
      Clock::now() +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_seconds));
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || Clock::now() >= limit) return errno;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return 0;
}

/// "process 4711 on node7 since 2026-01-31T12:00:00+0000", as the holder has written it.
std::string holder_text(int descriptor) {
  std::array<char, 256> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string holder = length > 0 ? text.data() : "";
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another process" : holder;
}

void name_holder(int descriptor, const std::string& path) {
  const std::string text = concat("process ", ::getpid(), " on ", host_name(), " since ",
                                  local_time_text(now_ms()), "\n");
  const bool written =
      ::ftruncate(descriptor, 0) == 0 &&
      ::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) {
    fail(ExitCode::kData, path, ": cannot be written: ", std::strerror(errno),
         "; free space or choose another folder with log.run_dir");
  }
}

}  // namespace

// Delegates, so that the destructor closes the file where the body throws.
RunLock::RunLock(const std::string& run_dir, double patience_seconds) : RunLock() {
  const std::string path = run_dir + "/run.lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    fail_to_open(path, errno, "choose a place that can be written with log.run_dir");
  }
  const int error = try_to_lock(descriptor_, patience_seconds);
  if (error == EWOULDBLOCK) {
    fail(ExitCode::kEnvironment, run_dir, ": ", holder_text(descriptor_),
         " is training in this folder; wait for it or stop it, or choose another folder with "
         "log.run_dir");
  }
  if (error != 0) {
    log_line(LogLevel::kWarning,
             concat(path, ": this file system has no locks (", std::strerror(error),
                    "); see to it that no other run uses this folder"));
  }
  name_holder(descriptor_, path);
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace bertha
