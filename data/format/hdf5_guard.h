#pragma once

#include <ctime>

#include <cstdint>
#include <string>

namespace bertha {

/// While one lives, a crash of the HDF5 library in this thread, or more processor time than reading
/// the file can take, ends the program with ExitCode::kData and a sentence that names the file: its
/// damaged structures do both. Nothing else may run then, since library and memory may be in any
/// state.
///
/// Threads   one at a time: under the lock of the library (hdf5_calls.h).
class Hdf5Guard {
 public:
  /// `path` outlives this.
  Hdf5Guard(const std::string& path, int64_t file_bytes);
  ~Hdf5Guard();
  Hdf5Guard(const Hdf5Guard&) = delete;
  Hdf5Guard& operator=(const Hdf5Guard&) = delete;

  /// Whether the library is reading now, under its lock.
  static bool is_alive();

 private:
  timer_t timer_{};
  bool has_timer_ = false;
};

}  // namespace bertha
