#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace bertha {

/// A file that is read at offsets, open as long as the object is.
///
/// Errors    Error(kData) when it cannot be opened, or is not a regular file (a pipe, a folder).
/// Threads   any may read.
class ByteFile {
 public:
  explicit ByteFile(const std::string& path);
  ~ByteFile();
  ByteFile(const ByteFile&) = delete;
  ByteFile& operator=(const ByteFile&) = delete;

  int64_t size_bytes() const { return size_bytes_; }  // when it was opened

  /// Fills `out`, which lies inside the file. What went wrong in words, for the caller's error; ""
  /// when nothing did.
  std::string read_at(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

/// Reads a number from its bytes, little-endian like this machine.
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace bertha
