#pragma once

#include <csetjmp>
#include <ctime>

#include <cstdint>
#include <string>

namespace bertha {

/// While one lives, a crash of the HDF5 library in this thread, or more processor time than reading
/// the file can take, brings the thread back to `entry`: damaged structures of a file do both.
/// The program has to end after that, since library and memory may be in any state. Where there is
/// no entry, the allocator finds damaged memory, or the program crashes again or has not ended
/// within 15 s, it is ended here: with ExitCode::kData, and the sentence of fail_if_broken().
///
/// Threads   one at a time: under the lock of the library (hdf5_calls.h).
class Hdf5Guard {
 public:
  /// `path` and `entry` (null: none) outlive this.
  Hdf5Guard(const std::string& path, int64_t file_bytes, sigjmp_buf* entry);
  ~Hdf5Guard();
  Hdf5Guard(const Hdf5Guard&) = delete;
  Hdf5Guard& operator=(const Hdf5Guard&) = delete;

  /// Whether the library has failed so, in this process.
  static bool is_broken();
  /// Throws Error(kData) that names the file, if it has.
  static void fail_if_broken();

 private:
  timer_t timer_{};
  bool has_timer_ = false;
};

}  // namespace bertha
