#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bertha {

/// An append-only file. Every append is one write() of the whole record at the end of the file
/// (O_APPEND), so records of a process that is killed, or of the processes of a machine that log to
/// one file, never mix within a line. It is not locked because any reader could take the lock and
/// stop the writer.
///
/// Writes    creates the file, without following a link; first ends a last line that a killed
///           process left unfinished. A record that does not fit on the disk is removed completely,
///           unless another process has appended meanwhile.
/// Errors    Error(kData) with the path and the system's reason (no space, no permission, ...), and
///           if the file has been removed or replaced: appended records would be lost.
/// Threads   one thread at a time.
class AppendFile {
 public:
  enum class Content { kLines, kBytes };

  explicit AppendFile(const std::string& path, Content content = Content::kLines);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  void append_line(std::string line);

  const std::string& path() const { return path_; }

 private:
  void check_in_place() const;
  void write(std::string_view bytes);
  void remove_last(off_t bytes);

  std::string path_;
  int descriptor_ = -1;
};

/// Creates a folder and its parents, unless they exist.
///
/// Errors    Error(kData) with the path, the reason (an existing file, no permission, ...) and
///           `advice`: what to do instead.
void make_folder(const std::string& path, const std::string& advice);

/// Milliseconds since the epoch.
int64_t now_ms();

/// A clock in milliseconds since the epoch that never goes back, even if the system's clock is
/// changed: the time at this call plus the elapsed time.
std::function<int64_t()> steady_clock_ms();

}  // namespace bertha
