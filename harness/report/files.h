#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace bertha {

/// A file that only grows. Every append is one write() of the whole record at the end of the file
/// (O_APPEND), so records of a process that is killed, or of the processes of a machine that log to
/// one file, never mix within a line. No lock: whoever can read a file could take it and stop the
/// writer.
///
/// Writes    creates the file, and follows no link there; a last line that a killed process left
///           unfinished is ended first. A record that does not fit on the disk is removed whole,
///           unless another process has appended meanwhile.
/// Errors    Error(kData) with the path and the system's reason (no space, no permission, ...), and
///           when the file has been removed or replaced since: what is appended would be lost.
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

/// Makes a folder and those above it; one that is there is fine.
///
/// Errors    Error(kData) with the path, the reason (a file in the way, no permission, ...) and
///           `advice`: what to choose instead.
void make_folder(const std::string& path, const std::string& advice);

/// Milliseconds since the epoch.
int64_t now_ms();

/// A clock that says milliseconds since the epoch and, however the system's clock is set meanwhile,
/// never goes back: the time at this call, and what has passed since.
std::function<int64_t()> steady_clock_ms();

}  // namespace bertha
