#pragma once

#include <string>

namespace bertha {

/// The right to write a run folder, which one process at a time has: an advisory lock on
/// <run_dir>/run.lock. The system lets go of it when the process ends, however it ends; the file
/// stays and names the last holder: host, process id, time.
///
/// flock(2), because NFS passes it on to the server, and because it belongs to the open file: no
/// other code of this process can give it up by closing run.lock.
class RunLock {
 public:
  RunLock() = default;  // holds nothing
  /// Takes the lock of a folder that exists. While another process has it, tries again for
  /// `patience_seconds`: one that was killed may take a moment to end.
  ///
  /// Errors    Error(kEnvironment) naming host and process id of the holder; Error(kData) when the
  ///           file cannot be written. A file system without locks is a warning.
  explicit RunLock(const std::string& run_dir, double patience_seconds = 3);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace bertha
