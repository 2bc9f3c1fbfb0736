#include "data/files/text_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "kernels/base/error.h"

namespace bertha {

std::string read_text_file(const std::string& path, int64_t most_bytes) {
  constexpr size_t kChunkBytes = size_t{1} << 16;
  // Without O_NONBLOCK opening a pipe would wait for its writer; reading one may wait.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, 0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb"), &std::fclose);
  if (!file) fail(ExitCode::kData, path, ": cannot open: ", std::strerror(errno));
  std::string text;
  for (size_t size = 0, got = 1; got > 0; size += got) {
    text.resize(size + kChunkBytes);
    got = std::fread(text.data() + size, 1, kChunkBytes, file.get());
    text.resize(size + got);
    if (static_cast<int64_t>(text.size()) > most_bytes) {
      fail(ExitCode::kData, path, ": larger than ", most_bytes, " bytes; give another file");
    }
  }
  if (std::ferror(file.get())) fail(ExitCode::kData, path, ": cannot read: ", std::strerror(errno));
  return text;
}

int64_t count_lines(const std::string& text) {
  const bool last_is_open = !text.empty() && text.back() != '\n';
  return std::ranges::count(text, '\n') + (last_is_open ? 1 : 0);
}

}  // namespace bertha
