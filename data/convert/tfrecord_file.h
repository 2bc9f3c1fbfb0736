#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/byte_file.h"

namespace bertha {

/// CRC-32C, rotated and offset as TFRecord files store it.
uint32_t masked_crc32c(std::span<const std::byte> bytes);

/// The records of one uncompressed TFRecord file, in order. A record is: uint64 length, its masked
/// CRC-32C (uint32), `length` bytes, their masked CRC-32C; all little-endian.
///
/// Errors    Error(kData) naming the file, the record and its first byte: a wrong checksum, a
///           record that the file ends in, a compressed file.
/// Threads   one per object.
class TfRecordFile {
 public:
  explicit TfRecordFile(const std::string& path);

  /// Goes on at this record, which begins at this byte.
  void seek(int64_t record, int64_t offset_bytes);
  bool at_end() const { return offset_bytes_ == file_.size_bytes(); }
  int64_t record() const { return record_; }
  int64_t offset_bytes() const { return offset_bytes_; }
  /// The coming record, checked; the bytes live until the next call.
  std::span<const std::byte> next();
  /// Passes over the coming record; only its length is checked.
  void skip();
  /// Error(kData) that names the record `next` gave last.
  [[noreturn]] void wrong_record(const std::string& what) const;

 private:
  std::span<const std::byte> read(int64_t offset_bytes, int64_t size_bytes);
  int64_t read_length();
  [[noreturn]] void damaged(const std::string& what) const;

  std::string path_;
  ByteFile file_;
  int64_t record_ = 0;        // the coming one
  int64_t offset_bytes_ = 0;  // start of the record
  std::vector<std::byte> window_;
  int64_t window_offset_bytes_ = 0;
};

}  // namespace bertha
