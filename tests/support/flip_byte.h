#pragma once

#include "tests/support/files.h"

namespace bertha {

/// Flips a bit of one byte of a file; places below zero count from its end.
inline void flip_byte(const std::string& path, int64_t at) {
  std::string bytes = bytes_of(path);
  char& byte = bytes.at(static_cast<size_t>(at < 0 ? at + std::ssize(bytes) : at));
  byte = static_cast<char>(byte ^ 0x10);
  write_bytes(path, bytes);
}

}  // namespace bertha
