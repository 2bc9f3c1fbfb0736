#pragma once

#include <string>

namespace bertha {

/// Exclusive access to a folder for one process, by an advisory lock on a file in it. Only the
/// owner can open that file (mode 0600): users who may only read the folder cannot take the lock.
/// The system releases it when the process ends in any way. The file contains its last holder:
/// host, process id, time.
///
/// Uses flock(2), because NFS forwards it to the server, and because it belongs to the open file:
/// no other code of this process can release it by closing the same file.
class FileLock {
 public:
  struct Request {
    std::string folder = {};  // exists
    std::string name = {};    // name of the file in it
    std::string doing = {};   // "is training in this folder"
    std::string advice = {};  // "choose another folder with log.run_dir"
    double patience_seconds = 0;
    bool removes_file = false;  // when it is released
  };

  FileLock() = default;  // locks nothing
  /// While another process has the lock, retries for the given time, because a killed process may
  /// take a moment to end.
  ///
  /// Errors    Error(kEnvironment) naming host and process id of the holder; Error(kData) if the
  ///           file cannot be written. A file system without locks causes a warning.
  explicit FileLock(const Request& request);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

 private:
  std::string removed_path_;  // removed when the lock is released; "" = the file stays
  int descriptor_ = -1;
};

}  // namespace bertha
