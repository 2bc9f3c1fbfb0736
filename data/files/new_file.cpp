#include "data/files/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

/// Makes a rename in the folder survive a power failure, if the file system supports that.
void sync_folder(const std::filesystem::path& folder) {
  const int handle =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  fsync(handle);
  close(handle);
}

/// Whether a file at this path would replace a device, a pipe or a folder; in /dev, links such as
/// /dev/stdout point to one.
bool is_no_place_for_a_file(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return false;
  return !S_ISLNK(found.st_mode) || std::filesystem::path(path).parent_path() == "/dev";
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path), temporary_path_(path + ".tmp") {
  if (is_no_place_for_a_file(path_)) {
    fail(ExitCode::kData, path_,
         ": is a device, a pipe or a folder, which a file cannot replace; give a file");
  }
  // Left by a killed process, or a link through which another user wants this file to be
  // written.
  unlink(temporary_path_.c_str());
  file_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file_ < 0) cannot("create", errno);
}

NewFile::~NewFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_path_.c_str());
}

void NewFile::cannot(const char* verb, int reason) const {
  fail(ExitCode::kData, path_, ": cannot ", verb, " the file: ", std::strerror(reason),
       "; check the path, its permissions and the free space");
}

void NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) cannot("write", errno);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

void NewFile::commit() {
  if (fsync(file_) != 0) cannot("write", errno);
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) cannot("rename", errno);
  close(file_);
  file_ = -1;
  sync_folder(std::filesystem::path(path_).parent_path());
}

bool is_file_at(int descriptor, const std::string& path) {
  struct stat open_file {};
  struct stat named_file {};
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

void write_new_file(const std::string& path, std::string_view bytes) {
  NewFile file(path);
  file.write(bytes);
  file.commit();
}

void replace_link(const std::string& link, const std::string& target) {
  const std::filesystem::path path(link);
  const std::filesystem::path fresh =
      path.parent_path() / concat(".", path.filename().string(), "-", ::getpid());
  std::error_code error;
  std::filesystem::remove(fresh, error);  // left by a process that was killed here
  std::filesystem::create_directory_symlink(target, fresh, error);
  if (!error) std::filesystem::rename(fresh, path, error);
  if (error) log_line(LogLevel::kWarning, concat(link, " not updated: ", error.message()));
}

}  // namespace bertha
