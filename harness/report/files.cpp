#include "harness/report/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "data/files/new_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

bool ends_inside_a_line(int descriptor) {
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  char last = '\n';
  return end > 0 && ::pread(descriptor, &last, 1, end - 1) == 1 && last != '\n';
}

/// Fails for a file that could not be opened with O_NOFOLLOW; the error says if it is a link.
[[noreturn]] void fail_to_open(const std::string& path, int error) {
  if (error != ELOOP) {
    fail(ExitCode::kData, path, ": cannot open for writing: ", std::strerror(error),
         "; choose another folder with log.run_dir");
  }
  fail(ExitCode::kData, path,
       ": is a link, but a run writes only to files in its own folder; "
       "remove the link, or choose another folder with log.run_dir");
}

}  // namespace

AppendFile::AppendFile(const std::string& path, Content content) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_to_open(path, errno);
  try {
    // A record that another process is writing also looks unfinished; this adds an empty line then.
    if (content == Content::kLines && ends_inside_a_line(descriptor_)) write("\n");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::check_in_place() const {
  if (is_file_at(descriptor_, path_)) return;
  fail(ExitCode::kData, path_,
       ": was removed or replaced while this run wrote to it, so its log is "
       "lost; do not move a run folder before the run has ended, and start it again");
}

void AppendFile::append(std::string_view bytes) {
  check_in_place();
  write(bytes);
}

void AppendFile::write(std::string_view bytes) {
  // One write() usually writes the whole record; the loop is for signals and for a file system that
  // writes less than requested, as a full one does before it fails.
  off_t written_bytes = 0;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      remove_last(written_bytes);
      fail(ExitCode::kData, path_, ": cannot write: ", std::strerror(error),
           "; free space or choose another folder with log.run_dir");
    }
    written_bytes += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// If another process has appended since, or the file cannot be truncated, the next opening ends the
// line.
void AppendFile::remove_last(off_t bytes) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  struct stat file {};
  if (bytes == 0 || ::fstat(descriptor_, &file) != 0 || file.st_size != end) return;
  [[maybe_unused]] const int cut = ::ftruncate(descriptor_, end - bytes);
}

void AppendFile::append_line(std::string line) {
  line += '\n';
  append(line);
}

void make_folder(const std::string& path, const std::string& advice) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) {
    fail(ExitCode::kData, path, ": cannot create this folder: ", error.message(), "; ", advice);
  }
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::function<int64_t()> steady_clock_ms() {
  using std::chrono::steady_clock;
  return [start_ms = now_ms(), start = steady_clock::now()] {
    return start_ms +
           std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start)
               .count();
  };
}

}  // namespace bertha
