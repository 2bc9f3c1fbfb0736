#include "data/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "data/files/new_file.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;

/// 0, or the errno of the last try.
int try_to_lock(int descriptor, Clock::time_point limit) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || Clock::now() >= limit) return errno;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return 0;
}

std::string own_host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "unknown";
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::array<char, 32> text{};
  ::localtime_r(&now, &local);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &local);
  return text.data();
}

/// "process 4711 on node7 since 2026-01-31T12:00:00+0000 is training in this folder", as written by
/// the holder. A lock can outlive the named process: another program may hold it.
std::string holder_text(int descriptor, const std::string& path, const std::string& doing) {
  std::array<char, 256> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string holder = length > 0 ? text.data() : "";
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  int process = 0;
  std::array<char, 256> host{};
  const bool is_named =
      std::sscanf(holder.c_str(), "process %d on %255s", &process, host.data()) == 2;
  if (is_named && host.data() == own_host_name() && process > 0 && ::kill(process, 0) != 0 &&
      errno == ESRCH) {
    return concat(holder,
                  " has ended or is in another container, but a program that is still "
                  "running has locked ",
                  path, "; `fuser ", path, "` shows it");
  }
  return concat(holder.empty() ? "another process" : holder, " ", doing);
}

}  // namespace

// Delegates, so that the destructor closes the file if the body throws.
FileLock::FileLock(const Request& request) : FileLock() {
  const std::string path = request.folder + "/" + request.name;
  const Clock::time_point limit =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(request.patience_seconds));
  int error = 0;
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor_ < 0) {
      fail(ExitCode::kData, path,
           errno == ELOOP ? std::string(": is a link, which is not followed; remove it, or ")
                          : concat(": cannot open for writing: ", std::strerror(errno), "; "),
           request.advice);
    }
    ::fchmod(descriptor_, 0600);  // earlier versions let everybody open it
    error = try_to_lock(descriptor_, limit);
  } while (error == 0 && !is_file_at(descriptor_, path));  // an earlier holder removed it
  if (error == EWOULDBLOCK) {
    fail(ExitCode::kEnvironment, request.folder, ": ",
         holder_text(descriptor_, path, request.doing), "; wait for it or stop it, or ",
         request.advice);
  }
  if (error != 0) {
    log_line(LogLevel::kWarning,
             concat(path, ": this file system has no locks (", std::strerror(error),
                    "); make sure that no other process writes to this folder"));
  }
  if (request.removes_file) removed_path_ = path;
  const std::string text =
      concat("process ", ::getpid(), " on ", own_host_name(), " since ", time_text(), "\n");
  const bool written =
      ::ftruncate(descriptor_, 0) == 0 &&
      ::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) {
    fail(ExitCode::kData, path, ": cannot be written: ", std::strerror(errno), "; free space or ",
         request.advice);
  }
}

FileLock::~FileLock() {
  if (!removed_path_.empty()) ::unlink(removed_path_.c_str());  // before others can lock it
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileLock::FileLock(FileLock&& other) noexcept { *this = std::move(other); }

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(removed_path_, other.removed_path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace bertha
