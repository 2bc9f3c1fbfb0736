#pragma once

#include <string>

namespace bertha {

/// A folder that one process at a time may write, by an advisory lock on a file in it. Only the
/// owner can open that file (mode 0600): who may merely read the folder cannot take the lock. The
/// system releases it when the process ends, however it ends. The file names its last holder: host,
/// process id, time.
///
/// flock(2), because NFS passes it on to the server, and because it belongs to the open file: no
/// other code of this process can give it up by closing the same file.
class FileLock {
 public:
  struct Request {
    std::string folder = {};  // exists
    std::string name = {};    // of the file in it
    std::string doing = {};   // "is training in this folder"
    std::string advice = {};  // "choose another folder with log.run_dir"
    double patience_seconds = 0;
    bool removes_file = false;  // when it is released
  };

  FileLock() = default;  // locks nothing
  /// While another process has the lock, tries again for the given time: one that was killed may
  /// take a moment to end.
  ///
  /// Errors    Error(kEnvironment) naming host and process id of the holder; Error(kData) when the
  ///           file cannot be written. A file system without locks is a warning.
  explicit FileLock(const Request& request);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

 private:
  std::string removed_path_;  // removed when the lock is released; "" = the file stays
  int descriptor_ = -1;
};

}  // namespace bertha
