#include "data/files/byte_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/base/error.h"

namespace bertha {

ByteFile::ByteFile(const std::string& path) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int reason = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail(ExitCode::kData, path, ": cannot open: ", std::strerror(reason));
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ExitCode::kData, path, ": not a regular file");
  }
  size_bytes_ = status.st_size;
}

ByteFile::~ByteFile() { ::close(descriptor_); }

std::string ByteFile::read_at(int64_t offset_bytes, std::span<std::byte> out) const {
  const int64_t wanted = std::ssize(out);
  for (int64_t done = 0; done < wanted;) {
    const auto left = static_cast<size_t>(wanted - done);
    const ssize_t got = ::pread(descriptor_, out.data() + done, left, offset_bytes + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return concat("cannot read at byte ", offset_bytes + done, ": ",
                    got == 0 ? "the file was truncated meanwhile" : std::strerror(errno));
    }
    done += got;
  }
  return "";
}

}  // namespace bertha
